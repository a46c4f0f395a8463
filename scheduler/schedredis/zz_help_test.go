package schedredis_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/solobeat/solobeat/scheduler"
)

func testRand(n int) int { return rand.IntN(n) }

func every20(t *testing.T) (l []*scheduler.Job) {
	for i := range 20 {
		l = append(l, every(t, fmt.Sprint("j", i), "1s"))
	}
	return l
}

package testkit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

func TestPollStopsAtTheFirstTrue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, calls := time.Now(), 0
		testkit.Poll(t, time.Minute, time.Second, func() bool { calls++; return calls == 4 }, "four calls")
		if got := time.Since(start); got != 3*time.Second {
			t.Errorf("took %v, want 3s", got)
		}
	})
}

func TestPollFailsWithItsMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		defer func() {
			if msg := fmt.Sprint(recover()); !strings.Contains(msg, "queue a empty") {
				t.Errorf("message %q", msg)
			}
			if got := time.Since(start); got < 5*time.Second || got > 6*time.Second {
				t.Errorf("gave up after %v, want 5s", got)
			}
		}()
		testkit.Poll(&fakeTB{}, 5*time.Second, time.Second, func() bool { return false }, "queue %s empty", "a")
	})
}

func TestEventuallyTellsTheLastError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if msg := fmt.Sprint(recover()); !strings.Contains(msg, "still three keys") {
				t.Errorf("message %q", msg)
			}
		}()
		testkit.Eventually(&fakeTB{}, time.Second, func() error { return errors.New("still three keys") })
	})
}

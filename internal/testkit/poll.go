package testkit

import (
	"fmt"
	"testing"
	"time"
)

// Poll calls cond at once and then every interval until it answers true, and
// fails the test when timeout passes first. The message is formatted as by
// fmt.Sprintf and says what was waited for.
func Poll(t testing.TB, timeout, interval time.Duration, cond func() bool, msg string, args ...any) {
	t.Helper()
	if !poll(timeout, interval, cond) {
		t.Fatalf("not within %v: %s", timeout, fmt.Sprintf(msg, args...))
	}
}

// Eventually calls check until it returns nil, with a short pause between two
// calls, and fails the test with its last error when timeout passes first.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	var last error
	ok := poll(timeout, 10*time.Millisecond, func() bool {
		last = check()
		return last == nil
	})
	if !ok {
		t.Fatalf("not within %v: %v", timeout, last)
	}
}

// poll looks once more after the deadline, so that a starved test process does
// not report as missing what came while it could not run.
func poll(timeout, interval time.Duration, cond func() bool) bool {
	deadline := time.Now().Add(timeout)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		late := !time.Now().Before(deadline)
		if cond() {
			return true
		}
		if late {
			return false
		}
		<-tick.C
	}
}

package testkit_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary play the child in tests of child processes.
func TestMain(m *testing.M) {
	if role := os.Getenv("TESTKIT_CHILD"); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(m)
}

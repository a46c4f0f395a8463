package command_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/solobeat/solobeat/tasks/command/guardian"
)

func TestMain(m *testing.M) {
	guardian.RunIfChild()
	goleak.VerifyTestMain(m)
}

package testkit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

func TestPythonHasItsCelery(t *testing.T) {
	t.Parallel()
	const script = "import celery, kombu; print(celery.__version__, kombu.__version__)"
	for version, want := range map[testkit.Celery]string{
		testkit.Celery52: "5.2.7 5.2.4",
		testkit.Celery57: "5.7.0 5.7.0",
	} {
		p := testkit.Start(t, string(version), nil, testkit.Python(t, version), "-c", script)
		code := p.Wait(time.Minute)
		if got := strings.TrimSpace(p.Stdout()); code != 0 || got != want {
			t.Errorf("%s: %q (exit %d), want %q", version, got, code, want)
		}
	}
}

func TestAMissingPythonNamesTheCure(t *testing.T) {
	t.Parallel()
	defer func() {
		if msg, _ := recover().(string); !strings.Contains(msg, "make setup") {
			t.Errorf("message %q", msg)
		}
	}()
	testkit.Python(&fakeTB{}, "celery-1.0")
}

func TestPromtoolRuns(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, "promtool", nil, testkit.Promtool(t), "--version")
	if code := p.Wait(time.Minute); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

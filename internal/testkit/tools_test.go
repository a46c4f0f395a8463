package testkit_test

import (
	"fmt"
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

func TestPrometheusAnswers(t *testing.T) {
	t.Parallel()
	am := testkit.Alertmanager(t, "route: {receiver: none}\nreceivers: [{name: none}]\n")
	prom := testkit.Prometheus(t, "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: self, static_configs: [{targets: ["+strings.TrimPrefix(am.URL, "http://")+"]}]}]\n")
	testkit.Eventually(t, time.Minute, func() error {
		found, err := prom.Query("up == 1")
		if err == nil && (len(found) != 1 || found[0]["job"] != "self") {
			err = fmt.Errorf("found %v", found)
		}
		return err
	})
	if _, err := prom.Query("up =="); err == nil {
		t.Error("a query that is none is no error")
	}
}

func TestPromtoolRuns(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, "promtool", nil, testkit.Promtool(t), "--version")
	if code := p.Wait(time.Minute); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

package testkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// webServer is a server of one test that answers over HTTP once it is ready.
type webServer struct {
	// URL is its address, "http://127.0.0.1:port".
	URL string

	t    testing.TB
	proc *Proc
}

// PrometheusServer is a Prometheus of one test, on loopback.
type PrometheusServer struct{ webServer }

// AlertmanagerServer is an Alertmanager of one test, on loopback, without
// peers.
type AlertmanagerServer struct{ webServer }

// Prometheus starts a Prometheus with this configuration and returns when it
// is ready. Names of files in it are to be absolute. It ends with the test.
func Prometheus(t testing.TB, config string) *PrometheusServer {
	t.Helper()
	return &PrometheusServer{startWeb(t, "prometheus", config, func(addr, file, dir string) []string {
		return []string{
			"--config.file=" + file, "--web.listen-address=" + addr, "--storage.tsdb.path=" + dir, "--log.level=warn",
			// What fires before Alertmanager was found is sent once more; a minute later by default.
			"--rules.alert.resend-delay=2s",
		}
	})}
}

// Alertmanager starts an Alertmanager with this configuration and returns when
// it is ready. It ends with the test.
func Alertmanager(t testing.TB, config string) *AlertmanagerServer {
	t.Helper()
	return &AlertmanagerServer{startWeb(t, "prometheus-alertmanager", config, func(addr, file, dir string) []string {
		return []string{"--config.file=" + file, "--web.listen-address=" + addr, "--storage.path=" + dir, "--cluster.listen-address=", "--log.level=warn"}
	})}
}

func startWeb(t testing.TB, program, config string, args func(addr, file, dir string) []string) webServer {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%s is not installed; run: make setup", program)
	}
	var err error
	for range 5 { // another process may take the port first
		dir, addr := t.TempDir(), FreeAddr(t)
		file := filepath.Join(dir, "config.yml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		s := webServer{URL: "http://" + addr, t: t, proc: Start(t, program, nil, append([]string{program}, args(addr, file, filepath.Join(dir, "data"))...)...)}
		if err = s.ready(); err == nil {
			return s
		}
		err = fmt.Errorf("%w\n%s", err, s.proc.Stderr())
	}
	t.Fatalf("%s does not start: %v", program, err)
	return webServer{}
}

func (s webServer) ready() error {
	deadline := time.Now().Add(time.Minute)
	for {
		code, _, err := s.get("/-/ready")
		switch {
		case err == nil && code == http.StatusOK:
			return nil
		case !s.proc.Alive():
			return errors.New("it ended at once")
		case time.Now().After(deadline):
			return fmt.Errorf("not ready within a minute: %d %w", code, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (s webServer) get(path string) (code int, body json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return resp.StatusCode, nil, nil
	}
	return resp.StatusCode, body, json.NewDecoder(resp.Body).Decode(&body)
}

// Query returns the labels of each series that an instant query finds now.
func (s *PrometheusServer) Query(expr string) ([]map[string]string, error) {
	code, body, err := s.get("/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || code != http.StatusOK {
		return nil, fmt.Errorf("query %s: %d %s %w", expr, code, answer.Error, err)
	}
	series := make([]map[string]string, 0, len(answer.Data.Result))
	for _, r := range answer.Data.Result {
		series = append(series, r.Metric)
	}
	return series, nil
}

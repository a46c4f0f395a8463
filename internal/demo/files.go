package demo

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The files in DIR.
const (
	scheduleFile = "schedule.yaml"
	configFile   = "solobeat.yaml"
	commitsFile  = "commits.jsonl"
	replicasFile = "replicas.json"
	summaryFile  = "summary.json"
	planFile     = "plan.json"
	metricsDir   = "metrics"
)

// prepareDir makes DIR and empties the files of an earlier demo.
func prepareDir(dir string, replicas int) error {
	if err := os.MkdirAll(filepath.Join(dir, metricsDir), 0o750); err != nil {
		return err
	}
	names := []string{scheduleFile, configFile, commitsFile, replicasFile, summaryFile, planFile}
	for i := 1; i <= max(replicas, 16); i++ {
		names = append(names, logName(i), filepath.Join(metricsDir, promName(i, false)), filepath.Join(metricsDir, promName(i, true)))
	}
	for _, n := range names {
		if err := os.Remove(filepath.Join(dir, n)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, commitsFile), nil, 0o600)
}

func logName(i int) string { return fmt.Sprintf("replica-%d.log", i) }

func promName(i int, killed bool) string {
	if killed {
		return fmt.Sprintf("replica-%d.killed.prom", i)
	}
	return fmt.Sprintf("replica-%d.prom", i)
}

// jobLines are the part of schedule.yaml that is shown to the user.
func jobLines(tick time.Duration, unsafe, asynq bool) string {
	guards := `    lock:                       # default key: one lock for the job
      ttl: 4s
      renew: 800ms
      on_busy: retry
    # idempotency: on by default, one record per job and tick
    # fence: a number that grows with every holder; a database can refuse late writers by it
`
	if unsafe {
		guards = "    lock: off\n    idempotency: off\n"
	}
	engine := ""
	if asynq {
		engine = "    engine: asynq\n"
	}
	return fmt.Sprintf(`jobs:
  hourly-report:
    task: %s
%s    every: %s                   # an hour, shrunk
    kwargs:
      hour: "{{ .Tick.UTC | rfc3339 }}"
%s`, TaskName, engine, tick, guards)
}

func writeFiles(dir string, s *store, tick time.Duration, unsafe bool) error {
	schedule := "# The demo's schedule: one job on every replica.\nversion: 1\n" + jobLines(tick, unsafe, s.onAsynq)
	process := fmt.Sprintf(`# The demo's process file: the same for every replica.
namespace: %s
redis:
  url: %q
  global_keyprefix: %q
  results_keyprefix: %q
worker:
%s  concurrency: 4
  grace: 1s
schedule:
  file: %s
log:
  format: json
`, s.namespace, s.url, s.prefix, s.prefix, s.workerLines(), scheduleFile)
	if err := os.WriteFile(filepath.Join(dir, scheduleFile), []byte(schedule), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, configFile), []byte(process), 0o600)
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

package config_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/solobeat/solobeat/config"
)

const solobeatYAML = `
redis:
  url: redis://redis:6379/0
worker:
  queues: [celery, reports]
tasks:
  payments.charge:
    params: [payment_id]
    lock: {key: "payment:{{ .Params.payment_id }}", ttl: 20s}
`

// A file, and what the environment says beside it.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "solobeat.yaml")
	if err := os.WriteFile(path, []byte(solobeatYAML), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	env := map[string]string{"SOLOBEAT_WORKER_CONCURRENCY": "8"} // or os.LookupEnv
	cfg, warnings, err := config.Load(path, func(key string) (string, bool) { v, ok := env[key]; return v, ok })
	if err != nil {
		fmt.Println(err) // all mistakes at once, each with file:line:col and its cure
		return
	}
	fmt.Println(cfg.Redis.LocksURL, cfg.Worker.Queues, cfg.Worker.Concurrency, len(warnings))
	fmt.Println(cfg.Tasks[0].Name, cfg.Tasks[0].Config.Lock.TTL)
	// Output:
	// redis://redis:6379/0 [celery reports] 8 0
	// payments.charge 20s
}

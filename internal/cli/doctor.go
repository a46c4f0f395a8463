package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/scheduler"
)

// Verdicts of a check.
const (
	verdictOK   = "ok"
	verdictWarn = "warn"
	verdictFail = "fail"
)

// finding is what one check says.
type finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
	Cure    string `json:"cure,omitempty"`
}

// doctorReport is what `doctor -o json` prints: what a report of a problem
// should hold.
type doctorReport struct {
	Versions    versionsView   `json:"versions"`
	At          time.Time      `json:"at"`
	Config      map[string]any `json:"config"`
	Tasks       []taskView     `json:"tasks"`
	Jobs        []jobFacts     `json:"jobs"`
	LockBackend lockBackend    `json:"lock_backend"`
	Redis       []redisFacts   `json:"redis"`
	// ClockOffset is the local clock minus the broker's, null if the broker was
	// not reached.
	ClockOffset *float64       `json:"clock_offset_seconds"`
	Replicas    []replicaFacts `json:"replicas"`
	Checks      []finding      `json:"checks"`
}

type versionsView struct {
	Solobeat string `json:"solobeat"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	CPUs     int    `json:"cpus"`
}

type lockBackend struct {
	Name  string `json:"name"`
	URL   string `json:"url"`
	Fence string `json:"fence,omitempty"`
}

type taskView struct {
	Name   string `json:"name"`
	Lock   string `json:"lock,omitempty"`
	Record string `json:"record,omitempty"`
}

type jobFacts struct {
	Name   string `json:"name"`
	Task   string `json:"task"`
	Engine string `json:"engine"`
	Queue  string `json:"queue"`
	Lock   bool   `json:"lock"`
	Record bool   `json:"record"`
}

// redisFacts is what one server tells of itself.
type redisFacts struct {
	Roles     []string `json:"roles"`
	URL       string   `json:"url"`
	Server    string   `json:"server,omitempty"` // redis or valkey
	Version   string   `json:"version,omitempty"`
	Mode      string   `json:"mode,omitempty"`
	Policy    string   `json:"maxmemory_policy,omitempty"`
	AOF       bool     `json:"aof"`
	Snapshots string   `json:"snapshots,omitempty"`
	// Offset is the local clock minus the server's, RoundTrip that of one PING.
	Offset    float64 `json:"clock_offset_seconds"`
	RoundTrip float64 `json:"round_trip_seconds"`
}

type replicaFacts struct {
	Engine  string   `json:"engine"`
	Name    string   `json:"name"`
	Version string   `json:"version,omitempty"`
	Queues  []string `json:"queues,omitempty"`
	Live    bool     `json:"live"`
}

func (c *program) doctorCommand() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check configuration, Redis, clocks, workers and queues, and say what to do",
		Long: `Check the configuration, each Redis server, clocks, workers, schedulers, queues
and guards, and say what to do about what is found. It changes nothing; what it
writes to see whether that is allowed are keys of its own. With -o json it prints a report for
bug trackers: versions, configuration with masked URLs, lock back end, clock offset
to Redis, and all checks.

Exit codes: 0 nothing failed; 1 a check failed; 3 warnings, with --strict.`,
		Example: `  solobeat doctor
  solobeat doctor -c solobeat.yaml --strict
  solobeat doctor -o json`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.doctor(cmd.Context(), strict) },
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "exit 3 if there are warnings")
	return c.withOutput(cmd)
}

// doctor is one examination.
type doctor struct {
	cfg    *config.Config
	jobs   []*scheduler.Job
	s      *stores
	report doctorReport
	// facts are those of the servers that answered, by role.
	facts map[string]redisFacts
}

func (c *program) doctor(ctx context.Context, strict bool) error {
	d := &doctor{facts: map[string]redisFacts{}}
	d.report = doctorReport{
		Versions: versionsView{Solobeat: Version(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()},
		At:       time.Now().UTC(), Config: map[string]any{}, Tasks: []taskView{}, Jobs: []jobFacts{}, Redis: []redisFacts{}, Replicas: []replicaFacts{},
	}
	if err := d.readConfig(c); err != nil {
		return err
	}
	if d.cfg != nil {
		if err := d.examine(ctx, c); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.printDoctor(&d.report, strict)
}

func (d *doctor) add(check, verdict, cure, format string, args ...any) {
	f := finding{Check: check, Verdict: verdict, Detail: redisconn.MaskText(fmt.Sprintf(format, args...)), Cure: cure}
	if verdict == verdictOK {
		f.Cure = ""
	}
	d.report.Checks = append(d.report.Checks, f)
}

// failed tells of a check that an error has ended.
func (d *doctor) failed(ctx context.Context, check string, err error) {
	d.add(check, verdictFail, cmp.Or(redisconn.Cure(err), rightsCure(ctx, d.s, err)), "%s", err)
}

// readConfig reads both files as a worker does, but goes on with what is wrong:
// a report of a problem should show it.
func (d *doctor) readConfig(c *program) error {
	path := c.configFile()
	problems := config.CheckEnv(c.environ)
	cfg, more, err := config.Load(path, c.env)
	problems = append(problems, more...)
	named := config.NamedSchedule(path, c.env)
	switch {
	case named == "":
	case err == nil:
		d.jobs, more, err = readSchedule(cfg)
		problems = append(problems, more...)
	default:
		_, more, _ = config.LoadSchedule(named)
		problems = append(problems, more...)
	}
	for _, p := range problems {
		verdict := verdictFail
		if p.Warning {
			verdict = verdictWarn
		}
		cure := p.Cure
		p.Cure, p.Warning = "", false
		d.add("config", verdict, cure, "%s", p)
	}
	if err != nil && !errors.As(err, new(config.Problems)) {
		return err
	}
	if len(problems) == 0 {
		d.add("config", verdictOK, "", "%s", shownPath(path))
	}
	d.cfg = cfg
	return nil
}

func shownPath(path string) string {
	if path == "" {
		return "no file: environment and defaults"
	}
	return path
}

func (d *doctor) examine(ctx context.Context, c *program) error {
	d.report.Config = d.cfg.Values()
	d.showGuards()
	s, err := openStores(d.cfg, slog.New(slog.DiscardHandler), "doctor")
	if err != nil {
		return err
	}
	d.s = s
	defer s.close()
	up := d.servers(ctx)
	d.surroundings(c)
	if up[s.locks] {
		d.lockServer(ctx)
	}
	if up[s.broker] {
		d.broker(ctx, up[s.results])
	}
	return nil
}

// surroundings checks what the process runs in, where that is cheap.
func (d *doctor) surroundings(c *program) {
	if _, inCluster := c.env("KUBERNETES_SERVICE_HOST"); inCluster && !d.cfg.Metrics.Explicit {
		d.add("metrics", verdictWarn, "set metrics.listen to 0.0.0.0:9464", "in a pod, and metrics are served at %s, where neither Prometheus nor a probe comes", d.cfg.Metrics.Listen)
	}
	if runtime.GOOS != "linux" {
		d.add("guardian", verdictWarn, "run workers on Linux", "on %s a killed worker may leave the programs of its commands running", runtime.GOOS)
	}
	if host, err := os.Hostname(); err != nil || host == "" {
		d.add("host", verdictWarn, "set worker.name", "the host has no name, by which a worker would be known")
	}
}

func (c *program) printDoctor(r *doctorReport, strict bool) error {
	counts := map[string]int{}
	for _, f := range r.Checks {
		counts[f.Verdict]++
	}
	if c.output == "json" {
		if err := printJSON(c.Out, r); err != nil {
			return err
		}
	} else {
		for _, f := range r.Checks {
			line := fmt.Sprintf("%-4s  %-14s  %s", f.Verdict, f.Check, f.Detail)
			if f.Cure != "" {
				line += " (" + f.Cure + ")"
			}
			if _, err := fmt.Fprintln(c.Out, printable(line)); err != nil {
				return err
			}
		}
		_, _ = fmt.Fprintf(c.Err, "%d ok, %s, %s\n", counts[verdictOK], counted(counts[verdictWarn], "warning"), counted(counts[verdictFail], "failure"))
	}
	switch {
	case counts[verdictFail] > 0:
		return exit(exitFailed, nil)
	case strict && counts[verdictWarn] > 0:
		return exit(exitWarnings, nil)
	}
	return nil
}

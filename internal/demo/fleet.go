package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/solobeat/solobeat/tasks/command/guardian"
)

// ReplicaInfo is one entry of replicas.json.
type ReplicaInfo struct {
	Replica int    `json:"replica"`
	PID     int    `json:"pid"`
	Metrics string `json:"metrics"`
}

// replica is one real process of the fleet, as its parent sees it.
type replica struct {
	n      int
	addr   string // its metrics address, kept over a restart
	cmd    *exec.Cmd
	orders io.WriteCloser
	exited chan struct{}
	state  *os.ProcessState
	ready  chan struct{}
	once   sync.Once
}

// fleet starts replicas, hears their events, and ends them.
type fleet struct {
	dir    string
	exe    string
	store  *store
	unsafe bool
	events chan Event

	mu       sync.Mutex
	stopping bool
	replicas []*replica
	readers  sync.WaitGroup
	// gone is closed when nobody hears events any more.
	gone chan struct{}
}

func newFleet(dir string, s *store, unsafe bool) (*fleet, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("demo: own binary: %w", err)
	}
	return &fleet{dir: dir, exe: exe, store: s, unsafe: unsafe, events: make(chan Event, 256), gone: make(chan struct{})}, nil
}

// errStopping: the fleet takes no more replicas.
var errStopping = errors.New("demo: the fleet is being stopped")

// freeAddr is a loopback address for metrics. It lies below the ports that
// systems give to outgoing connections, so that nobody has it while its
// replica is dead.
func freeAddr() string {
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	return "127.0.0.1:0"
}

// spawn starts replica n with the metrics address listen.
func (f *fleet) spawn(n int, listen string) (*replica, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping {
		return nil, errStopping
	}
	log, err := os.OpenFile(filepath.Join(f.dir, logName(n)), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	args := []string{"demo-replica", "-c", filepath.Join(f.dir, configFile), "--dir", f.dir, "--replica", fmt.Sprint(n)}
	if f.store.embedded != nil {
		args = append(args, "--embedded-store")
	}
	r := &replica{n: n, cmd: exec.Command(f.exe, args...), exited: make(chan struct{}), ready: make(chan struct{})}
	r.cmd.Env = f.env(n, listen)
	r.cmd.Stderr = log
	r.cmd.SysProcAttr = childAttr()
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if r.orders, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	f.replicas = append(f.replicas, r)
	f.readers.Go(func() { f.read(r, out) })
	return r, nil
}

// env is the parent's environment without any setting of Solobeat: the demo
// runs from its own files.
func (f *fleet) env(n int, listen string) []string {
	env := cleanEnv()
	env = append(env, "SOLOBEAT_METRICS_LISTEN="+listen)
	if f.unsafe { // each replica in a namespace of its own: each claims and publishes
		env = append(env, fmt.Sprintf("SOLOBEAT_NAMESPACE=%s-%d", f.store.namespace, n))
	}
	return env
}

// cleanEnv is the environment without any setting of Solobeat.
func cleanEnv() []string { return guardian.Env(os.Environ(), guardian.Settings, guardian.Run{}) }

// read passes the events of a replica on until it ends.
func (f *fleet) read(r *replica, out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		if e.Event == "ready" {
			r.once.Do(func() { r.addr = e.Detail; close(r.ready) })
			continue
		}
		f.tell(e)
	}
	_ = r.cmd.Wait()
	r.state = r.cmd.ProcessState
	close(r.exited)
}

// tell passes an event on, unless nobody listens any more.
func (f *fleet) tell(e Event) {
	select {
	case f.events <- e:
	case <-f.gone:
	}
}

// await waits until a replica is ready.
func (r *replica) await(ctx context.Context, dir string) error {
	select {
	case <-r.ready:
		return nil
	case <-r.exited:
		return fmt.Errorf("demo: replica %d ended at its start (%v): see %s", r.n, r.state, filepath.Join(dir, logName(r.n)))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *replica) order(what string) {
	_, _ = io.WriteString(r.orders, what+"\n") // a dead replica needs no order
}

// alive returns the replicas that have not ended.
func (f *fleet) alive() []*replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	var rs []*replica
	for _, r := range f.replicas {
		select {
		case <-r.exited:
		default:
			rs = append(rs, r)
		}
	}
	return rs
}

func (f *fleet) byPID(pid int) *replica {
	for _, r := range f.alive() {
		if r.cmd.Process.Pid == pid {
			return r
		}
	}
	return nil
}

// writeReplicas writes replicas.json.
func (f *fleet) writeReplicas() error {
	var list []ReplicaInfo
	for _, r := range f.alive() {
		list = append(list, ReplicaInfo{Replica: r.n, PID: r.cmd.Process.Pid, Metrics: r.addr})
	}
	return writeJSON(filepath.Join(f.dir, replicasFile), list)
}

// scrape reads a replica's metrics and keeps them in DIR.
func (f *fleet) scrape(ctx context.Context, r *replica, killed bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("demo: replica %d: %w", r.n, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	return body, os.WriteFile(filepath.Join(f.dir, metricsDir, promName(r.n, killed)), body, 0o600)
}

// kill sends SIGKILL and returns the signal that the wait saw.
func (f *fleet) kill(ctx context.Context, r *replica) (syscall.Signal, error) {
	if err := r.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return 0, err
	}
	select {
	case <-r.exited:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	ws, ok := r.state.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return 0, fmt.Errorf("demo: replica %d was killed and ended with %v", r.n, r.state)
	}
	return ws.Signal(), nil
}

// stop ends all replicas: TERM, and KILL for who does not go.
func (f *fleet) stop(ctx context.Context) {
	f.mu.Lock()
	f.stopping = true
	f.mu.Unlock()
	close(f.gone)
	for _, r := range f.alive() {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, r := range f.alive() {
		select {
		case <-r.exited:
		case <-late.Done():
			_ = r.cmd.Process.Kill()
			<-r.exited
		}
	}
	f.readers.Wait()
}

// unguarded runs n plain processes that form the report at one tick.
func (f *fleet) unguarded(ctx context.Context, n int, tick string) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, f.exe, "demo-cron", "--dir", f.dir, "--tick", tick)
			cmd.Env = cleanEnv()
			cmd.SysProcAttr = childAttr()
			if _, err := cmd.StdinPipe(); err != nil { // its end tells the child that its parent is gone
				errs[i] = err
				return
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				errs[i] = fmt.Errorf("demo: cron job %d: %w: %s", i+1, err, out)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

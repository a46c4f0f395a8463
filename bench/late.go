package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/bench/rig"
)

//go:embed witness.lua
var witnessScript string

// arrival is a message of a tick and when it was seen in the queue.
type arrival struct {
	id       string
	tick, at time.Time
}

// lateness compares each message's arrival in the queue with its tick.
func (b *bench) lateness(ctx context.Context, config string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv, err := rig.StartRedis(ctx, b.dir)
	if err != nil {
		return err
	}
	defer srv.Stop()
	p, err := b.startOurs(ctx, "solobeat", "scheduler", srv.Addr, config)
	if err != nil {
		return err
	}
	defer p.Stop()
	w := startWitness(ctx, srv.Client)
	err = rig.Until(ctx, time.Minute, 50*time.Millisecond, func() (bool, error) { return w.count() > 0, p.Failure() })
	if err != nil {
		return errors.Join(fmt.Errorf("no tick came: %w", err), w.stop())
	}
	window := int64(b.of(10, 2))
	first := time.Now().Unix() + 3 // its start is over
	until := time.Unix(first+window*int64(b.rounds), 0).Add(2 * time.Second)
	b.say("%d jobs, %d of them due each second, for %d s", b.of(allJobs, tinyJobs), ticksASec, window*int64(b.rounds))
	before, redisBefore, err := used(ctx, srv, p)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pause(ctx, time.Until(until)); err != nil {
		return err
	}
	after, redisAfter, err := used(ctx, srv, p)
	if err != nil {
		return errors.Join(err, p.Failure())
	}
	share := 100 / time.Since(began).Seconds()
	b.tell("10,000 jobs, 200 ticks a second: CPU of the scheduler, of its Redis with the witness", fmt.Sprintf("%.1f %%, %.1f %%", share*(after-before).Seconds(), share*(redisAfter-redisBefore).Seconds()))
	// How early a message can be is asked with a finer clock, which costs Redis
	// too much for a measure of how late they are.
	m, err := startMonitor(ctx, srv.Addr)
	if err != nil {
		return err
	}
	if err := pause(ctx, time.Duration(b.of(10, 2))*time.Second); err != nil {
		return err
	}
	p.Stop()
	pushedAt, err := m.stop()
	if err := errors.Join(err, w.stop()); err != nil {
		return err
	}
	line, err := b.judgeLateness(w.arrivals, pushedAt, first, window)
	if err == nil && b.missed(line) {
		line.profile = b.profileScheduler(ctx, config, false)
	}
	return err
}

func (b *bench) judgeLateness(arrivals []arrival, pushedAt map[string]time.Time, first, window int64) (*row, error) {
	rounds := make([][]float64, b.rounds)
	early, counted, exact := 0, 0, 0
	for _, a := range arrivals {
		at, ok := pushedAt[a.id]
		if ok {
			exact++
		}
		if a.at.Before(a.tick) || ok && at.Before(a.tick) {
			early++
		}
		if i := (a.tick.Unix() - first) / window; a.tick.Unix() >= first && i < int64(b.rounds) {
			rounds[i] = append(rounds[i], millis(a.at.Sub(a.tick)))
			counted++
		}
	}
	if exact == 0 {
		return nil, errors.New("MONITOR has told of no message")
	}
	var p50, p99 series
	for i, late := range rounds {
		if len(late) == 0 {
			return nil, errors.New("a whole round has no tick")
		}
		p50, p99 = append(p50, percentile(late, 0.5)), append(p99, percentile(late, 0.99))
		b.say("round %d, %d ticks, late p50 %.1f ms, p99 %.1f ms, at most %.1f ms", i+1, len(late), p50[i], p99[i], slices.Max(late))
	}
	line := b.judge("10,000 jobs: p99 late at 200 ticks a second", "≤ 100 ms", p99.show("%.1f", "ms"), p99.median() <= 100)
	b.judge("10,000 jobs: early", "0", fmt.Sprintf("%d of %d", early, len(arrivals)), early == 0)
	b.tell("10,000 jobs: p50 late at 200 ticks a second", p50.show("%.1f", "ms"))
	b.tell("10,000 jobs: ticks published of those due", fmt.Sprintf("%d of %d", counted, ticksASec*int(window)*b.rounds))
	b.note("**Jobs.** The binary as it ships. Load and validate: the whole of `solobeat validate` on files with 10,000 jobs, twice a round. Idle: 10,000 daily jobs, none due for hours, once the start is over. " +
		"Late: 9,800 daily jobs and 200 with `every: 1s`, all of which are due at the same instant. A witness takes the messages out of the queue each millisecond, with Redis's TIME; the tick stands in a message's arguments. The first 3 s do not count. " +
		fmt.Sprintf("Early: all messages so seen, also those of the first seconds; of the last %d MONITOR told the microsecond of the push.", exact))
	return line, nil
}

// witness takes messages out of the queue as they come.
type witness struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu       sync.Mutex
	n        int
	arrivals []arrival // valid after stop
	seen     map[string]bool
	err      error
}

func startWitness(ctx context.Context, c *redis.Client) *witness {
	ctx, cancel := context.WithCancel(ctx)
	w := &witness{cancel: cancel, ended: make(chan struct{}), seen: map[string]bool{}}
	go func() {
		defer close(w.ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		script := redis.NewScript(witnessScript)
		for {
			found, err := w.look(ctx, c, script)
			if err != nil && ctx.Err() == nil {
				w.err = err
				return
			}
			if ctx.Err() != nil && found == 0 {
				return
			}
			<-tick.C
		}
	}()
	return w
}

func (w *witness) look(ctx context.Context, c *redis.Client, script *redis.Script) (int, error) {
	reply, err := script.Run(context.WithoutCancel(ctx), c, []string{queueKey}, 1000).Slice()
	if err != nil || len(reply) != 3 {
		return 0, fmt.Errorf("witness: %v: %w", reply, err)
	}
	sec, _ := strconv.ParseInt(reply[0].(string), 10, 64)
	micro, _ := strconv.ParseInt(reply[1].(string), 10, 64)
	messages := reply[2].([]any)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range messages {
		a, err := readTick(m.(string))
		if err != nil {
			return 0, err
		}
		if w.seen[a.id] {
			return 0, fmt.Errorf("the tick of message %s was published twice", a.id)
		}
		w.seen[a.id] = true
		a.at = time.Unix(sec, micro*1000)
		w.arrivals = append(w.arrivals, a)
	}
	w.n += len(messages)
	return len(messages), nil
}

func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// stop takes what is left and returns what went wrong.
func (w *witness) stop() error {
	w.cancel()
	<-w.ended
	return w.err
}

// readTick reads id and tick of a message.
func readTick(text string) (a arrival, err error) {
	var m struct {
		Body    string `json:"body"`
		Headers struct {
			ID string `json:"id"`
		} `json:"headers"`
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return a, err
	}
	body, err := base64.StdEncoding.DecodeString(m.Body)
	if err != nil {
		return a, err
	}
	var kwargs struct {
		Tick string `json:"tick"`
	}
	if err := json.Unmarshal(body, &[]any{new(any), &kwargs, new(any)}); err != nil {
		return a, fmt.Errorf("body %s: %w", body, err)
	}
	sec, err := strconv.ParseInt(kwargs.Tick, 10, 64)
	if err != nil {
		return a, fmt.Errorf("message %s has no tick: %w", m.Headers.ID, err)
	}
	return arrival{id: m.Headers.ID, tick: time.Unix(sec, 0)}, nil
}

// monitor listens to what a Redis runs.
type monitor struct {
	conn net.Conn
	wg   sync.WaitGroup
	at   map[string]time.Time // of each push, by task id
	err  error
}

// pushed is a line of MONITOR about a message that a script has pushed.
var (
	pushed = regexp.MustCompile(`(?i)^\+?(\d+)\.(\d{6}) \[\d+ lua\] "lpush" "` + queueKey + `" `)
	anID   = regexp.MustCompile(`\\"id\\": ?\\"([0-9a-f-]{36})\\"`)
)

func startMonitor(ctx context.Context, addr string) (*monitor, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, err
	}
	m := &monitor{conn: conn, at: map[string]time.Time{}}
	m.wg.Go(func() {
		lines := bufio.NewReaderSize(conn, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					m.err = err
				}
				return
			}
			m.take(line)
		}
	})
	return m, nil
}

func (m *monitor) take(line string) {
	at := pushed.FindStringSubmatch(line)
	if at == nil {
		return
	}
	id := anID.FindStringSubmatch(line)
	if id == nil {
		m.err = fmt.Errorf("no task id in %.300s", line)
		return
	}
	sec, _ := strconv.ParseInt(at[1], 10, 64)
	micro, _ := strconv.ParseInt(at[2], 10, 64)
	m.at[id[1]] = time.Unix(sec, micro*1000)
}

func (m *monitor) stop() (map[string]time.Time, error) {
	_ = m.conn.Close()
	m.wg.Wait()
	return m.at, m.err
}

package redisconn_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/internal/testkit"
)

// echoes are a joint and a plain one that do the same for one caller.
func echoes() map[string]*redisconn.Script {
	return map[string]*redisconn.Script{
		"joint": redisconn.NewJointScript(`
			local out = {}
			for i, key in ipairs(KEYS) do
				if ARGV[i] == 'bad' then out[i] = {err = 'ERR bad ' .. key} else out[i] = {key, ARGV[i]} end
			end
			return #KEYS == 1 and out[1] or out`),
		"plain": redisconn.NewScript(`
			if ARGV[1] == 'bad' then return {err = 'ERR bad ' .. KEYS[1]} end
			return {KEYS[1], ARGV[1]}`),
	}
}

// Many callers at once each get their own answer, or their own error, also
// after the server has forgotten its scripts; they share commands.
func TestBatcherAnswersEachCaller(t *testing.T) {
	t.Parallel()
	for name, s := range echoes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const callers, each = 32, 20
			c := testkit.Redis(t).Client(t)
			b := redisconn.NewBatcher(redisconn.NewRunner(c))
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					for j := range each {
						if i == 0 && j == each/2 {
							c.ScriptFlush(t.Context())
						}
						key, arg := fmt.Sprintf("k%d", i), fmt.Sprint(j)
						if (i+j)%5 == 0 {
							arg = "bad"
						}
						answer, err := b.Run(t.Context(), nil, s, 1, key, arg)
						got, _ := answer.([]any)
						if arg == "bad" {
							if err == nil || !strings.Contains(err.Error(), "bad "+key) {
								t.Errorf("%v, %v: want the error of %s", got, err, key)
							}
						} else if err != nil || len(got) != 2 || got[0] != key || got[1] != arg {
							t.Errorf("%v, %v: want %s %s", got, err, key, arg)
						}
					}
				})
			}
			wg.Wait()
			if name == "joint" {
				info := c.Info(t.Context(), "commandstats").Val()
				_, calls, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
				var n int
				if _, err := fmt.Sscanf(calls, "%d", &n); err != nil || n >= callers*each {
					t.Errorf("%d commands for %d calls (%v): nothing was sent together", n, callers*each, err)
				}
			}
		})
	}
}

// Who leaves gets the context's error at once, and holds up nobody who was sent
// with it; what comes of its call then is told to late, so that nothing is won
// without anybody knowing.
func TestBatcherTellsTheLate(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	admin, c := srv.Client(t), srv.Client(t)
	b := redisconn.NewBatcher(redisconn.NewRunner(c))
	s := echoes()["joint"]
	if _, err := b.Run(t.Context(), nil, s, 1, "warm", "x"); err != nil {
		t.Fatal(err)
	}
	var told atomic.Int64
	for range 10 { // until some that leave were sent with some that stay
		if err := admin.Do(t.Context(), "CLIENT", "PAUSE", 400).Err(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 24 {
			patience := 100 * time.Millisecond
			if i%2 == 0 {
				patience = 10 * time.Second
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				late := func(answer any, err error) {
					if got, _ := answer.([]any); err == nil && got[0] == fmt.Sprint(i) {
						told.Add(1)
					}
				}
				_, err := b.Run(ctx, late, s, 1, fmt.Sprint(i), "x")
				if i%2 == 0 && err != nil || i%2 == 1 && err == nil {
					t.Errorf("caller %d with %v: %v", i, patience, err)
				}
			})
		}
		wg.Wait()
		if told.Load() > 0 {
			return
		}
	}
	// The last of them may be told only now.
	testkit.Poll(t, time.Second, time.Millisecond, func() bool { return told.Load() > 0 }, "somebody is told of a call that was carried out late")
}

package schedredis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
)

// Repro: stop the server right after ticks, many times, with a witness of short read timeout.
func TestZZRepro(t *testing.T) {
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	wc := redis.NewClient(&redis.Options{Addr: srv.Addr, MaxRetries: -1, ReadTimeout: 500 * time.Millisecond})
	defer wc.Close()
	w := watch(t, wc)
	start(t, srv.Client(t), "r", "a", every20(t))
	wait(t, rdb, serverMillis(t, rdb)+2500)
	begin := serverMillis(t, rdb)
	for range 12 {
		at := serverMillis(t, rdb)/1000*1000 + 1000
		for serverMillis(t, rdb) < at {
		}
		<-time.After(time.Duration(testRand(6)) * time.Millisecond)
		srv.Pause()
		<-time.After(800 * time.Millisecond)
		srv.Continue()
	}
	wait(t, rdb, serverMillis(t, rdb)+3000)
	end := serverMillis(t, rdb) - 2000
	lost, fired := 0, 0
	for i := range 20 {
		job := fmt.Sprint("j", i)
		m := ofJob(w.list(), job, begin, end)
		for tick := begin/1000*1000 + 1000; tick <= end; tick += 1000 {
			if _, ok := m[tick]; ok {
				continue
			}
			lost++
			for _, e := range rdb.XRange(t.Context(), "solobeat:default:sched:history:"+job, "-", "+").Val() {
				if e.Values["tick"] == fmt.Sprint(tick) && e.Values["outcome"] == "fired" {
					fired++
				}
			}
		}
	}
	t.Logf("lost by witness %d, of these fired in the store's history %d", lost, fired)
}

package resultstore_test

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A frozen server takes connections and answers nothing: a wait for a result on
// it ends when it was to end, and says that nothing is known.
func TestWaitOnFrozenServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // which resets what it has not accepted
	client, err := redisconn.Open(redisconn.Options{URL: "redis://" + l.Addr().String() + "/0?read_timeout=8s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	began := time.Now()
	r, final, err := resultstore.Wait(t.Context(), client, "key", 2500*time.Millisecond)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if r != nil || final || err == nil {
		t.Errorf("got %v, %v, %v, want an error", r, final, err)
	}
}

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/metrics"
)

// check is one part of /healthz or /readyz; nil is fine.
type check func() error

// admin serves /metrics, /healthz and /readyz.
type admin struct {
	server *http.Server
	addr   string
	done   chan struct{}
}

// serveAdmin listens on metrics.listen. If only the default address is taken,
// it takes a free port and says which; an address that was asked for and is
// taken is an error.
func serveAdmin(cfg *config.Config, log *slog.Logger, m *metrics.Metrics, health, ready map[string]check) (*admin, error) {
	if cfg.Metrics.Listen == "off" {
		return &admin{addr: "off"}, nil
	}
	l, err := net.Listen("tcp", cfg.Metrics.Listen)
	if errors.Is(err, syscall.EADDRINUSE) && !cfg.Metrics.Explicit {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
			log.Warn("metrics.listen is taken, a free port is used", "wanted", cfg.Metrics.Listen, "listen", l.Addr().String())
		}
	}
	if err != nil {
		return nil, exitf(exitConfig, "metrics.listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	mux.Handle("GET /healthz", checks(health))
	mux.Handle("GET /readyz", checks(ready))
	a := &admin{
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
		addr:   l.Addr().String(), done: make(chan struct{}),
	}
	go func() {
		defer close(a.done)
		if err := a.server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics server ended", "error", err)
		}
	}()
	log.Info("metrics", "listen", a.addr)
	return a, nil
}

func (a *admin) close(ctx context.Context) {
	if a.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = a.server.Shutdown(ctx)
	<-a.done
}

// checks answers 200 if all hold, else 503; the body names each.
func checks(all map[string]check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, status := map[string]string{}, http.StatusOK
		for name, c := range all {
			body[name] = "ok"
			if err := c(); err != nil {
				body[name], status = err.Error(), http.StatusServiceUnavailable
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	})
}

// since is a check that an instant is not too long ago.
func since(last func() time.Time, limit time.Duration, what string) check {
	return func() error {
		if age := time.Since(last()); age > limit {
			return fmt.Errorf("%s has not completed for %s", what, short(age))
		}
		return nil
	}
}

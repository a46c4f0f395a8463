package celery

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
)

// ErrProbe is wrapped by errors of [Engine.Probe]: the server answers, but
// does not allow what the engine needs.
var ErrProbe = errors.New("celery: the server does not allow what the engine needs")

// Probe tries, on keys that it deletes again, what the engine needs of the
// server: scripts, SET and PUBLISH, and SELECT where results are in another
// database. Where SELECT is not allowed, results count as on another server from
// then on. The error names the ACL rule that is missing, or says that the server
// was not reached. It must be over before Run is called.
func (e *Engine) Probe(ctx context.Context) error {
	if _, err := e.redis.Shebang(ctx); err != nil {
		if redisconn.Denied(err.Error()) {
			return e.refused("+script|load", err)
		}
		return fmt.Errorf("celery: broker %s: %w", e.rdb.Options().Addr, err)
	}
	key := "probe:" + e.cfg.Instance
	refusal, err := e.redis.Run(ctx, e.scripts.probe, e.probeKeys(key), e.resultsDB(), e.brokerDB()).StringSlice()
	switch {
	case err == nil && len(refusal) == 0:
		return e.probeResults(ctx)
	case err == nil && len(refusal) == 2 && refusal[0] == "SELECT" && redisconn.Denied(refusal[1]):
		e.log.Info("results count as on another server: the broker's user may not select their database", "database", e.resultsDB())
		e.elsewhere = newElsewhere(e.cfg.Results)
		return e.probeResults(ctx)
	case err == nil && len(refusal) == 2:
		return e.refusedCommand(refusal[0], refusal[1])
	case err == nil:
		return fmt.Errorf("%w: probe: %q", errReply, refusal)
	case redisconn.Denied(err.Error()):
		return e.refused("+eval +evalsha", err)
	}
	return fmt.Errorf("celery: broker %s: %w", e.rdb.Options().Addr, err)
}

// probeResults tries to write a result where that is another server's.
func (e *Engine) probeResults(ctx context.Context) error {
	if e.elsewhere == nil {
		return nil
	}
	err := e.elsewhere.writer.Probe(ctx, e.keys.result("probe:"+e.cfg.Instance))
	opt := e.cfg.Results.Options()
	switch {
	case errors.Is(err, resultstore.ErrRefused):
		return fmt.Errorf("%w: results on %s: user %q: %w", ErrProbe, opt.Addr, opt.Username, err)
	case err != nil:
		return fmt.Errorf("celery: results on %s: %w", opt.Addr, err)
	}
	return nil
}

// refusedCommand tells what a refusal of one command in the script means.
func (e *Engine) refusedCommand(command, text string) error {
	err := redisconn.Refusal(text)
	index := strings.Contains(strings.ToLower(text), "db index")
	if !index && !redisconn.Denied(text) { // a state of the server (full, loading, read only), which no rule mends
		return fmt.Errorf("celery: broker %s: %s is refused: %w", e.rdb.Options().Addr, command, err)
	}
	if index {
		return fmt.Errorf("%w: results database %s: %w", ErrProbe, e.resultsDB(), redisconn.WithCure(err, redisconn.DBCure))
	}
	return e.refused("+"+strings.ToLower(command), err)
}

// refused names the ACL rule that a refusal asks for: those of the commands,
// unless it is about keys or channels.
func (e *Engine) refused(commands string, err error) error {
	cure := redisconn.PermissionCure(err.Error(), commands)
	return fmt.Errorf("%w: user %q: %w", ErrProbe, e.rdb.Options().Username, redisconn.WithCure(err, cure))
}

// resultsDB is the database of results as scripts take it: "" for the
// broker's own, and for results that no script writes.
func (e *Engine) resultsDB() string {
	if e.cfg.Results == nil || e.elsewhere != nil || e.cfg.Results.Options().DB == e.rdb.Options().DB {
		return ""
	}
	return fmt.Sprint(e.cfg.Results.Options().DB)
}

// probeKeys are the keys of the probe script; that of results is left out where
// they are none of the broker's business.
func (e *Engine) probeKeys(key string) []string {
	if e.elsewhere != nil {
		return []string{e.keys.own(key)}
	}
	return []string{e.keys.own(key), e.keys.result(key)}
}

func (e *Engine) brokerDB() string { return fmt.Sprint(e.rdb.Options().DB) }

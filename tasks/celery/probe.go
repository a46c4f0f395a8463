package celery

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrProbe is wrapped by errors of [Engine.Probe]: the server answers, but
// does not allow what the engine needs.
var ErrProbe = errors.New("celery: the server does not allow what the engine needs")

// Probe tries, on keys that it deletes again, what the engine needs of the
// server: scripts, SET and PUBLISH, and SELECT where results are in another
// database. The error names the ACL rule that is missing, or says that the
// server was not reached.
func (e *Engine) Probe(ctx context.Context) error {
	if _, err := e.redis.Shebang(ctx); err != nil {
		if rule := denied(err); rule != "" {
			return e.refused(rule, err)
		}
		return fmt.Errorf("celery: broker %s: %w", e.rdb.Options().Addr, err)
	}
	key := "probe:" + e.cfg.Instance
	err := e.redis.Run(ctx, e.scripts.probe, []string{e.keys.own(key), e.keys.result(key)}, e.resultsDB(), e.brokerDB()).Err()
	var reply redis.Error
	switch {
	case err == nil:
		return nil
	case denied(err) != "":
		return e.refused(denied(err), err)
	case errors.As(err, &reply) && e.resultsDB() != "" && strings.Contains(strings.ToUpper(err.Error()), "DB INDEX"):
		return fmt.Errorf("%w: results database %s does not exist: %w", ErrProbe, e.resultsDB(), err)
	}
	return fmt.Errorf("celery: broker %s: %w", e.rdb.Options().Addr, err)
}

func (e *Engine) refused(rule string, err error) error {
	hint := ""
	if strings.EqualFold(rule, "+select") {
		hint = "; or put results into the broker's own database"
	}
	return fmt.Errorf("%w: user %q needs the ACL rule %s%s: %w", ErrProbe, e.rdb.Options().Username, rule, hint, err)
}

// resultsDB is the database of results as scripts take it: "" for the
// broker's own.
func (e *Engine) resultsDB() string {
	if e.cfg.Results == nil || e.cfg.Results.Options().DB == e.rdb.Options().DB {
		return ""
	}
	return fmt.Sprint(e.cfg.Results.Options().DB)
}

func (e *Engine) brokerDB() string { return fmt.Sprint(e.rdb.Options().DB) }

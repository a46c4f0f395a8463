package celery

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// Names of Celery's remote control.
const (
	controlExchange = "celery.pidbox"
	replyExchange   = "reply.celery.pidbox"
)

// ForeignWorkers asks Celery workers that are not ours which queues they take
// from, as `celery inspect active_queues` does, and waits for their answers for
// no longer than wait: by node name. A worker that is busy or frozen may not
// answer; silent is how many did not.
func (a *Admin) ForeignWorkers(ctx context.Context, wait time.Duration) (queues map[string][]string, silent int, err error) {
	me, ticket := wire.NewID(), wire.NewID()
	binding := a.keys.prefix + "_kombu.binding." + replyExchange
	inbox := strings.TrimPrefix(a.keys.own("reply:"+me), a.keys.prefix) // a key that our user may use
	ask, err := controlMessage("active_queues", me, ticket)
	if err != nil {
		return nil, 0, err
	}
	rdb := a.cfg.Broker
	member := wire.BindingMember(me, "", inbox)
	if err := rdb.SAdd(ctx, binding, member).Err(); err != nil {
		return nil, 0, fmt.Errorf("celery: control: %w", err)
	}
	defer func() {
		tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = rdb.Pipelined(tidy, func(p redis.Pipeliner) error {
			p.SRem(tidy, binding, member)
			p.Del(tidy, a.keys.prefix+inbox)
			return nil
		})
	}()
	channel := a.keys.prefix + "/" + strconv.Itoa(rdb.Options().DB) + "." + controlExchange
	heard, err := rdb.Publish(ctx, channel, ask).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("celery: control: %w", err)
	}
	queues = map[string][]string{}
	end := time.Now().Add(wait)
	for answers := int64(0); answers < heard; answers++ {
		raw, err := a.reply(ctx, a.keys.prefix+inbox, end)
		if err != nil {
			return queues, int(heard - answers), err
		}
		if raw == nil {
			return queues, int(heard - answers), nil
		}
		readQueues(raw, queues)
	}
	return queues, 0, nil
}

// reply waits for one answer; nil if none comes in time. It looks instead of
// blocking, so that nothing is left hanging on the server.
func (a *Admin) reply(ctx context.Context, inbox string, end time.Time) ([]byte, error) {
	for {
		raw, err := a.cfg.Broker.RPop(ctx, inbox).Bytes()
		switch {
		case err == nil:
			return raw, nil
		case !errors.Is(err, redis.Nil):
			return nil, fmt.Errorf("celery: control: %w", err)
		case !time.Now().Before(end):
			return nil, nil
		}
		pause(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func controlMessage(method, oid, ticket string) ([]byte, error) {
	body, err := json.Marshal(map[string]any{
		"method": method, "arguments": map[string]any{}, "destination": nil, "pattern": nil, "matcher": nil, "ticket": ticket,
		"reply_to": map[string]any{"exchange": replyExchange, "routing_key": oid},
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"body": base64.StdEncoding.EncodeToString(body), "content-encoding": "utf-8", "content-type": "application/json",
		"headers": map[string]any{"clock": 1, "expires": float64(time.Now().Add(10 * time.Second).Unix())},
		"properties": map[string]any{
			"delivery_mode": 2, "delivery_info": map[string]any{"exchange": controlExchange, "routing_key": ""}, "priority": 0,
			"body_encoding": "base64", "delivery_tag": wire.NewID(),
		},
	})
}

// readQueues reads one answer; what is none is left out.
func readQueues(raw []byte, into map[string][]string) {
	var envelope struct {
		Body       string `json:"body"`
		Properties struct {
			Encoding string `json:"body_encoding"`
		} `json:"properties"`
	}
	if json.Unmarshal(raw, &envelope) != nil {
		return
	}
	body := []byte(envelope.Body)
	if envelope.Properties.Encoding == "base64" {
		var err error
		if body, err = base64.StdEncoding.DecodeString(envelope.Body); err != nil {
			return
		}
	}
	var answer map[string]json.RawMessage
	if json.Unmarshal(body, &answer) != nil {
		return
	}
	for node, value := range answer {
		var list []struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(value, &list) // an error of the worker's is no list
		into[node] = []string{}
		for _, q := range list {
			into[node] = append(into[node], q.Name)
		}
	}
}

// ForeignUnacked counts the messages that workers which are not ours have taken
// and not acknowledged, by queue; it looks at no more than most entries.
func (a *Admin) ForeignUnacked(ctx context.Context, most int) (map[string]int, error) {
	counts := map[string]int{}
	var cursor uint64
	for seen := 0; seen < most; {
		kv, next, err := a.cfg.Broker.HScan(ctx, a.keys.unacked(), cursor, "*", scanCount).Result()
		if err != nil {
			return nil, fmt.Errorf("celery: unacked: %w", err)
		}
		for i := 0; i+1 < len(kv); i += 2 {
			seen++
			if strings.HasPrefix(kv[i], tagMark) {
				continue
			}
			_, _, queue, _ := wire.ParseUnacked([]byte(kv[i+1]))
			counts[queue]++
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	return counts, nil
}

// Stranded lists the in-flight lists of replicas that are not alive, with the
// number of messages in them: any worker that starts puts them back.
func (a *Admin) Stranded(ctx context.Context) (map[string]int64, error) {
	replicas, err := a.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, r := range replicas {
		live[r.Instance] = r.Live
	}
	return a.lists(ctx, "inflight:", func(rest string) bool {
		instance, _, _ := strings.Cut(rest, ":")
		return !live[instance]
	})
}

// lists finds our lists that begin with a text and are wanted by what is behind
// it, with the number of messages in them.
func (a *Admin) lists(ctx context.Context, begin string, wanted func(rest string) bool) (map[string]int64, error) {
	begin = a.keys.own(begin)
	found := map[string]int64{}
	var cursor uint64
	for {
		keys, next, err := a.cfg.Broker.Scan(ctx, cursor, escapeGlob(begin)+"*", scanCount).Result()
		if err != nil {
			return nil, fmt.Errorf("celery: lists %s: %w", begin, err)
		}
		for _, key := range keys {
			if !wanted(strings.TrimPrefix(key, begin)) {
				continue
			}
			n, err := a.cfg.Broker.LLen(ctx, key).Result()
			if err != nil {
				return nil, fmt.Errorf("celery: list %s: %w", key, err)
			}
			if n > 0 {
				found[key] = n
			}
		}
		if cursor = next; cursor == 0 {
			return found, nil
		}
	}
}

// escapeGlob makes a text one that a pattern of Redis means literally.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(s)
}

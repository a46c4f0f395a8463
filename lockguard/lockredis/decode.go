package lockredis

import (
	"fmt"
	"strconv"
	"time"

	"github.com/solobeat/solobeat/lockguard"
)

// The codes of the scripts; each script's header tells its own.
const (
	codeForeign = -1
	codeBusy    = 0

	codeFree = 0
	codeHeld = 1

	codeTaken = -1
	codeGone  = 0
	codeOurs  = 1
	codeKept  = 2
)

// decodeAcquire takes the base that the attempt has told; so the reply need not.
func decodeAcquire(key string, base uint64, answer any) (lockguard.Grant, error) {
	if fence, ok := answer.(string); ok {
		n, err := number("fence", fence)
		return lockguard.Grant{Fence: lockguard.Fence(n + base)}, err
	}
	reply, _ := answer.([]any)
	code, err := codeOf(reply)
	if err != nil {
		return lockguard.Grant{}, err
	}
	switch code {
	case codeBusy:
		holder, err := holderOf(key, reply)
		if err != nil {
			return lockguard.Grant{}, err
		}
		return lockguard.Grant{}, &lockguard.BusyError{Holder: holder, RetryAfter: holder.Left}
	case codeForeign:
		return lockguard.Grant{}, foreign(key, reply)
	}
	return lockguard.Grant{}, fmt.Errorf("%w: acquire: %v", errReply, reply)
}

func decodeRead(key string, reply []any) (lockguard.Holder, error) {
	code, err := codeOf(reply)
	if err != nil {
		return lockguard.Holder{}, err
	}
	switch code {
	case codeFree:
		return lockguard.Holder{Key: key}, nil
	case codeHeld:
		return holderOf(key, reply)
	case codeForeign:
		return lockguard.Holder{}, foreign(key, reply)
	}
	return lockguard.Holder{}, fmt.Errorf("%w: read: %v", errReply, reply)
}

func decodeRenew(code int64) lockguard.RenewResult {
	switch code {
	case codeOurs:
		return lockguard.RenewResult{State: lockguard.Renewed}
	case codeGone:
		return lockguard.RenewResult{State: lockguard.RenewLost, Reason: lockguard.ReasonGone}
	case codeTaken:
		return lockguard.RenewResult{State: lockguard.RenewLost, Reason: lockguard.ReasonTaken}
	}
	return lockguard.RenewResult{Err: fmt.Errorf("%w: renew: %d", errReply, code)}
}

func decodeRelease(answer any) (lockguard.Release, error) {
	if code, ok := answer.(int64); ok {
		switch code {
		case codeOurs:
			return lockguard.Released, nil
		case codeKept:
			return lockguard.Kept, nil
		case codeGone, codeTaken:
			return lockguard.NotHeld, nil
		}
	}
	return lockguard.ReleaseUnknown, fmt.Errorf("%w: release: %v", errReply, answer)
}

// holderOf decodes {code, pttl} and {code, pttl, companion}.
func holderOf(key string, reply []any) (lockguard.Holder, error) {
	h := lockguard.Holder{Key: key, Held: true}
	if len(reply) != 2 && len(reply) != 3 {
		return h, fmt.Errorf("%w: holder: %v", errReply, reply)
	}
	pttl, ok := reply[1].(int64)
	if !ok {
		return h, fmt.Errorf("%w: holder: %v", errReply, reply)
	}
	if pttl >= 0 { // −1: it never runs out; 0: it does within this millisecond
		h.Left = time.Duration(max(pttl, 1)) * time.Millisecond
	}
	if len(reply) == 2 {
		h.Foreign = true
		return h, nil
	}
	return h, readCompanion(&h, text(reply[2]))
}

func number(name, digits string) (uint64, error) {
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: %s %s", errReply, name, digits)
	}
	return n, nil
}

func foreign(key string, reply []any) error {
	kind := "unknown"
	if len(reply) == 2 {
		kind = text(reply[1])
	}
	return fmt.Errorf("%w: %q is a %s in Redis", lockguard.ErrForeignKey, key, kind)
}

func codeOf(reply []any) (int64, error) {
	if len(reply) > 0 {
		if code, ok := reply[0].(int64); ok {
			return code, nil
		}
	}
	return 0, fmt.Errorf("%w: %v", errReply, reply)
}

// text is "" for nil.
func text(v any) string {
	s, _ := v.(string)
	return s
}

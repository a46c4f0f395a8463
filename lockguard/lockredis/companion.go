package lockredis

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/solobeat/solobeat/lockguard"
)

// A companion is one text, since a hash of its parts costs the server several
// times as much to write:
//
//	FENCE SINCE TOKEN BASE LEN TASK INSTANCE
//
// FENCE is the back end's number and SINCE the milliseconds of the grant, both of
// the server; TOKEN is that of the holder; BASE is what the caller adds to the
// fence; LEN is the length of TASK in bytes, since task and instance may be empty
// and hold anything. The scripts know the first three.

// tail is what follows the token.
func tail(base uint64, task, instance string) string {
	b := make([]byte, 0, 24+len(task)+len(instance))
	b = strconv.AppendUint(b, base, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(task)), 10)
	b = append(b, ' ')
	b = append(b, task...)
	b = append(b, ' ')
	b = append(b, instance...)
	return string(b)
}

// readCompanion puts what a companion tells into h.
func readCompanion(h *lockguard.Holder, text string) error {
	part := strings.SplitN(text, " ", 6)
	if len(part) < 6 {
		return fmt.Errorf("%w: companion %q", errReply, text)
	}
	h.Kept = strings.HasPrefix(part[2], "kept:")
	if ms, err := strconv.ParseInt(part[1], 10, 64); err == nil {
		h.Since = time.UnixMilli(ms)
	}
	n, err := number("fence", part[0])
	if err != nil {
		return err
	}
	base, err := number("fence base", part[3])
	if err != nil {
		return err
	}
	h.Fence = lockguard.Fence(n + base)
	size, err := strconv.Atoi(part[4])
	if rest := part[5]; err == nil && size >= 0 && size < len(rest) && rest[size] == ' ' {
		h.TaskID, h.Instance = rest[:size], rest[size+1:]
		return nil
	}
	return fmt.Errorf("%w: companion %q", errReply, text)
}

package redisconn

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// DBCure is for a database that the server does not have.
const DBCure = "write a smaller number after the slash of the URL: a server has the databases 0 to 15, unless its setting databases says more"

var (
	commandRE = regexp.MustCompile(`run the '([^']+)' command`)
	// accessRE is a refusal of keys or channels, as Redis 6 and 7 word it.
	accessRE = regexp.MustCompile(`(?i)access (?:a|(?:at least )?one of the) (key|channel)`)
)

// Cure says what to do about a server that answers and says no, "" if that is
// not known or has been said. Only what the server said counts: names of
// queues and files that stand around it do not.
func Cure(err error) string {
	var told *curedError
	var reply redis.Error
	if errors.As(err, &told) || !errors.As(err, &reply) {
		return ""
	}
	text := reply.Error()
	has := func(words string) bool { return strings.Contains(text, words) }
	switch { // scripts put words of their own before those of the command
	case has("DB index is out of range"):
		return DBCure
	case has("WRONGPASS"), has("NOAUTH"):
		return "put user and password into the URL: redis://user:password@host:6379/0"
	case has("NOPERM"):
		return PermissionCure(text, "")
	case has("READONLY"):
		return "this server is a replica: name the primary in the URL"
	case has("MASTERDOWN"):
		return "this server is a replica that has lost its primary: name the primary in the URL"
	case has("OOM command not allowed"):
		return "the server's memory is full: raise its maxmemory, or remove what is not needed"
	case has("MISCONF"):
		return "the server cannot write to its disk: its log says why"
	case has("LOADING"):
		return "the server is reading its data: try again when it is done"
	}
	return ""
}

// PermissionCure names the ACL rule that a server's refusal asks for, "" if
// that is not known. The rules +command are for a refusal of the command; ""
// takes the command that the refusal names.
func PermissionCure(refusal, commands string) string {
	rule := commands
	if m := accessRE.FindStringSubmatch(refusal); m != nil && strings.EqualFold(m[1], "channel") {
		rule = "&<pattern> for the channels of Celery and Solobeat, or &*"
	} else if m != nil {
		rule = "~<pattern> for the keys of Celery (queues, unacked*, _kombu.*, celery-task-meta-*), solobeat:* and your locks, or ~*"
	} else if m := commandRE.FindStringSubmatch(refusal); m != nil && rule == "" {
		rule = "+" + m[1]
	}
	if rule == "" {
		return ""
	}
	return "give the user the ACL rule " + rule
}

// Denied reports whether a server's words refuse something for want of a
// permission, also within a script.
func Denied(text string) bool {
	for _, words := range []string{"NOPERM", "user executing the script can't", "no permissions", "ACL failure"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// WithCure adds to an error, as the end of its text, what to do about it; of
// such an error [Cure] has nothing more to say. A cure of "" adds nothing.
func WithCure(err error, cure string) error {
	if cure == "" {
		return err
	}
	return &curedError{err: err, cure: cure}
}

type curedError struct {
	err  error
	cure string
}

func (e *curedError) Error() string { return e.err.Error() + " (" + e.cure + ")" }
func (e *curedError) Unwrap() error { return e.err }

// Refusal is the error reply of a command that a script has called, where the
// script passes its text on.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// RedisError makes it a [redis.Error].
func (Refusal) RedisError() {}

// ReachError is the error of a first command to the server of a URL: it tells
// a server that says no from one that does not answer. The setting is where the
// URL is set, in the words of the command line: redis.url (SOLOBEAT_REDIS_URL),
// or --redis.
func ReachError(url, setting string, err error) error {
	if Answered(err) {
		return fmt.Errorf("redis %s of %s: %w", MaskURL(url), setting, err)
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
		return fmt.Errorf("redis %s closed the connection: %w (is its maxclients reached, or a firewall between? is %s right?)", MaskURL(url), err, setting)
	}
	return fmt.Errorf("redis %s does not answer: %w (is it running, and is %s right?)", MaskURL(url), err, setting)
}

// Answered reports whether an error is a server's reply.
func Answered(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

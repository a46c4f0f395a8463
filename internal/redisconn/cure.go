package redisconn

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// KeysRule is the ACL rule for a user who may not use the keys.
const KeysRule = "~<pattern> for the keys of Celery (queues, unacked*, _kombu.*, celery-task-meta-*), solobeat:* and your locks, or ~*"

// DBCure is for a database that the server does not have.
const DBCure = "write a smaller number after the slash of the URL: a server has the databases 0 to 15, unless its setting databases says more"

var commandRE = regexp.MustCompile(`run the '([^']+)' command`)

// Cure says what to do about a server that answers and says no, "" if that is
// not known. The text of err is searched, since scripts and transactions wrap
// what a command was told.
func Cure(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	has := func(words string) bool { return strings.Contains(text, words) }
	switch {
	case has("DB index is out of range"):
		return DBCure
	case has("WRONGPASS"), has("NOAUTH"):
		return "put user and password into the URL: redis://user:password@host:6379/0"
	case has("NOPERM"):
		return permissionCure(text)
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

func permissionCure(text string) string {
	rule := ""
	if m := commandRE.FindStringSubmatch(text); m != nil {
		rule = "+" + m[1]
	} else if lower := strings.ToLower(text); strings.Contains(lower, "channel") {
		rule = "&<pattern> for the channels of Celery and Solobeat, or &*"
	} else if strings.Contains(lower, "key") {
		rule = KeysRule
	}
	if rule == "" {
		return ""
	}
	return "give the user the ACL rule " + rule
}

// ReachError is the error of a first command to the server of a URL, which
// setting names, such as redis.url: it tells a server that says no from one
// that does not answer.
func ReachError(url, setting string, err error) error {
	if Answered(err) {
		return fmt.Errorf("redis %s (%s): %w", MaskURL(url), setting, err)
	}
	return fmt.Errorf("redis %s does not answer: %w (is it running, and is %s right?)", MaskURL(url), err, variable(setting))
}

// variable adds the environment variable that stands for a key.
func variable(key string) string {
	return key + " (SOLOBEAT_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_")) + ")"
}

// Answered reports whether an error is a server's reply.
func Answered(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

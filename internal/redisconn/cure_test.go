package redisconn

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A cure is for what a server said, not for names that look like it.
func TestCureIsForRepliesOnly(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"LOADING.yaml", "READONLY/NOPERM-key.yaml", "WRONGPASS", "MISCONF.yaml"} {
		_, err := os.Stat(t.TempDir() + "/" + file)
		if cure := Cure(fmt.Errorf("next: %w", err)); cure != "" {
			t.Errorf("%v: %s", err, cure)
		}
	}
	if cure := Cure(nil); cure != "" {
		t.Error(cure)
	}
}

// The rule is that of the refusal, whatever the queue or the user is called.
func TestPermissionCure(t *testing.T) {
	t.Parallel()
	const keys, channels = "ACL rule ~<pattern>", "ACL rule &<pattern>"
	for _, tc := range []struct{ reply, want string }{
		{"NOPERM User u has no permissions to run the 'client|setname' command", "ACL rule +client|setname"},
		{"NOPERM User key-channel has no permissions to run the 'set' command", "ACL rule +set"},
		{"NOPERM this user has no permissions to run the 'get' command or its subcommand", "ACL rule +get"},
		{"NOPERM No permissions to access a key", keys},
		{"NOPERM No permissions to access a channel", channels},
		{"NOPERM this user has no permissions to access one of the keys used as arguments", keys},
		{"NOPERM this user has no permissions to access one of the channels used as arguments", channels},
		{"NOPERM ACL failure in script: No permissions to access a key script: f1", keys},
	} {
		for _, queue := range []string{"channel", "key"} {
			err := fmt.Errorf("queue %s: access a %s: %w", queue, queue, Refusal(tc.reply))
			if cure := Cure(err); !strings.Contains(cure, tc.want) {
				t.Errorf("%v: %q, want %q", err, cure, tc.want)
			}
		}
	}
	if cure := Cure(Refusal("NOPERM something new about the keyboard")); cure != "" {
		t.Errorf("a rule for an unknown refusal: %s", cure)
	}
}

// What has its cure gets no second one.
func TestWithCure(t *testing.T) {
	t.Parallel()
	refusal := Refusal("NOPERM User u has no permissions to run the 'evalsha' command")
	err := fmt.Errorf("engine: %w", WithCure(refusal, PermissionCure(refusal.Error(), "+eval +evalsha")))
	if want := "engine: " + refusal.Error() + " (give the user the ACL rule +eval +evalsha)"; err.Error() != want {
		t.Errorf("got %s, want %s", err, want)
	}
	if cure := Cure(err); cure != "" || !errors.Is(err, refusal) {
		t.Errorf("a second cure %q of %v", cure, err)
	}
}

// The message names the setting as it was given, an option too.
func TestReachError(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"redis redis://****@h:1/0 does not answer: EOF (is it running, and is --redis right?)":                                                     errors.New("EOF"),
		"redis redis://****@h:1/0 closed the connection: write: broken pipe (is its maxclients reached, or a firewall between? is --redis right?)": fmt.Errorf("write: %w", syscall.EPIPE),
		"redis redis://****@h:1/0 of --redis: WRONGPASS no":                                                                                        Refusal("WRONGPASS no"),
	} {
		if got := ReachError("redis://:hunter2@h:1/0", "--redis", err).Error(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

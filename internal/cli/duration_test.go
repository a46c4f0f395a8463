package cli

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestDurationFlag(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"0": 0, "90s": 90 * time.Second, "1d12h": 36 * time.Hour} {
		cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
		var got time.Duration
		durationFlag(cmd, &got, "wait", time.Minute, "how long")
		cmd.SetArgs([]string{"--wait", text})
		if err := cmd.Execute(); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	cmd := &cobra.Command{Use: "x", SilenceUsage: true, SilenceErrors: true, RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.SetOut(io.Discard)
	var got time.Duration
	durationFlag(cmd, &got, "wait", 0, "how long")
	cmd.SetArgs([]string{"--wait", "5"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "write the unit, for example 5s") {
		t.Errorf("%v", err)
	}
	for _, args := range [][]string{{"--wait", "-5s"}, {"--wait=-1h"}} {
		cmd.SetArgs(args)
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "negative") || got != 0 {
			t.Errorf("%v: %s, %v", args, got, err)
		}
	}
	if usage := cmd.Flags().FlagUsages(); strings.Contains(usage, "default") {
		t.Error(usage)
	}
}

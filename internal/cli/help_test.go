package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// leaves are the commands that people can run.
func leaves(cmd *cobra.Command) (all []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" {
			continue
		}
		if c.HasAvailableSubCommands() {
			all = append(all, leaves(c)...)
		} else {
			all = append(all, c)
		}
	}
	return all
}

// words splits a line as a shell does, as far as the examples go.
func words(line string) (all []string) {
	var word strings.Builder
	in, quote := false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, in = r, true
		case quote == 0 && r == ' ':
			if in {
				all = append(all, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if in {
		all = append(all, word.String())
	}
	return all
}

// Every command's help has examples, and each of them is a command line that
// the command takes.
func TestX01_HelpExamplesParse(t *testing.T) {
	t.Parallel()
	root := (&program{Streams: Streams{Out: io.Discard, Err: io.Discard}}).root()
	all := leaves(root)
	if len(all) < 15 {
		t.Fatalf("only %d commands", len(all))
	}
	for _, cmd := range all {
		examples := 0
		for line := range strings.Lines(cmd.Example) {
			line = strings.TrimSpace(line)
			_, args, found := strings.Cut(line, "solobeat ")
			if !found {
				if !strings.HasPrefix(line, "#") {
					t.Errorf("%s: example %q", cmd.CommandPath(), line)
				}
				continue
			}
			examples++
			fresh := (&program{Streams: Streams{Out: io.Discard, Err: io.Discard}}).root()
			found2, rest, err := fresh.Find(words(args))
			if err != nil || found2.CommandPath() != cmd.CommandPath() {
				t.Errorf("%q is an example of %s: %v", line, cmd.CommandPath(), err)
				continue
			}
			if err := errors.Join(found2.ParseFlags(rest), found2.ValidateArgs(found2.Flags().Args())); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
		}
		if examples == 0 || cmd.Short == "" {
			t.Errorf("%s: %d examples, short %q", cmd.CommandPath(), examples, cmd.Short)
		}
	}
}

// What is hidden is in nobody's help.
func TestHiddenCommandsAreHidden(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	code := Main(context.Background(), []string{"--help"}, Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard}, nil, nil)
	if code != exitOK || strings.Contains(out.String(), "demo-") || strings.Contains(out.String(), "completion") {
		t.Errorf("exit %d:\n%s", code, out.String())
	}
}

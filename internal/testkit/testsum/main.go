// Command testsum runs `go test -json` with its arguments and tells a reader how
// it went: one line per package, the output of what failed, the slowest tests,
// and in the end "N passed, N failed". It fails when a test failed, when one
// was skipped, and when none ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		fmt.Fprintln(stderr, "testsum:", err)
		return 1
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, "testsum:", err)
		return 1
	}
	s := newSummary(stdout)
	if err := s.readAll(out); err != nil {
		fmt.Fprintln(stderr, "testsum:", err)
	}
	err = cmd.Wait()
	return s.finish(err)
}

func (s *summary) readAll(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				s.add(e)
			} else {
				_, _ = s.w.Write(line) // not an event: show it as it is
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

package config

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// corrupt makes a broken variant of a file.
func corrupt(r *rand.Rand, text []byte) []byte {
	out := bytes.Clone(text)
	for range 1 + r.IntN(4) {
		if len(out) == 0 {
			return out
		}
		lines := bytes.SplitAfter(out, []byte("\n"))
		i, j := r.IntN(len(lines)), r.IntN(len(lines))
		at := r.IntN(len(out))
		const signs = "\x00\t\n\r :-#*&!|>'\"%@`{}[],?\\~<=0é\xff"
		switch r.IntN(9) {
		case 0: // flip a bit
			out[at] ^= 1 << r.IntN(8)
		case 1: // another sign
			out[at] = signs[r.IntN(len(signs))]
		case 2: // one more sign
			out = append(out[:at:at], append([]byte{signs[r.IntN(len(signs))]}, out[at:]...)...)
		case 3: // drop a sign
			out = append(out[:at:at], out[at+1:]...)
		case 4: // drop a line
			out = bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil)
		case 5: // double a line elsewhere
			out = bytes.Join(append(append(append([][]byte{}, lines[:i]...), lines[j]), lines[i:]...), nil)
		case 6: // swap two lines
			lines[i], lines[j] = lines[j], lines[i]
			out = bytes.Join(lines, nil)
		case 7: // cut the end off
			out = out[:at]
		case 8: // indent a line
			lines[i] = append([]byte(strings.Repeat(" ", 1+r.IntN(5))), lines[i]...)
			out = bytes.Join(lines, nil)
		}
	}
	return out
}

// A corrupted file is loaded or has an error with a line, and nothing panics
// or hangs.
func TestX11_CorruptedFiles(t *testing.T) {
	t.Parallel()
	var files [][]byte
	var schedule []bool
	for _, folder := range []string{"good", "bad", "warn"} {
		paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
		if err != nil || len(paths) == 0 {
			t.Fatal(folder, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, text)
			schedule = append(schedule, strings.HasPrefix(filepath.Base(path), "schedule"))
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	loaded, refusedFiles := 0, 0
	for range 2000 {
		i := r.IntN(len(files))
		text := corrupt(r, files[i])
		start := time.Now()
		var ps Problems
		var err error
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v\n%q", p, text)
				}
			}()
			if schedule[i] {
				_, ps, err = ParseSchedule("f", text)
			} else {
				_, ps, err = parseConfig(newDecoder("f"), text, nil)
			}
			IsScheduleFile(text)
		}()
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("took %v\n%q", took, text)
		}
		if err == nil {
			loaded++
			continue
		}
		refusedFiles++
		errs := ps.Errors()
		if len(errs) == 0 {
			t.Errorf("an error without problems\n%q", text)
		}
		for _, p := range errs {
			if p.Line < 1 || p.Col < 1 || p.Message == "" || p.Cure == "" {
				t.Errorf("%+v\n%q", p, text)
			}
		}
	}
	if loaded < 50 || refusedFiles < 1000 {
		t.Errorf("%d loaded, %d refused: the variants are too tame, or too wild", loaded, refusedFiles)
	}
}

// manyJobs is a schedule of n jobs as people write them.
func manyJobs(n int) []byte {
	var b bytes.Buffer
	b.WriteString("version: 1\ndefaults: {timezone: Europe/Berlin, timeout: 10m, lock: {ttl: 60s}}\njobs:\n")
	for i := range n {
		fmt.Fprintf(&b, "  job-%d:\n    task: reports.form\n    cron: \"%d %d * * *\"\n    kwargs: {day: \"{{ .Tick.Local | date }}\", shop: %d}\n"+
			"    lock: {key: \"report:%d\", expect: 5m}\n    idempotency: {key: \"report:%d:{{ .Tick.Local | hour }}\", retention: 48h}\n    misfire: {policy: once, deadline: 1h}\n    owner: shop-%d\n",
			i, i%60, i/60%24, i, i, i, i)
	}
	return b.Bytes()
}

// inTime fails if the work on a text takes more than 2 s and more than 25 times
// what the YAML parser needs for it: on a busy machine only the second says
// something. Not parallel, so that its own package does not disturb it.
func inTime(t *testing.T, text []byte, work func()) {
	t.Helper()
	start := time.Now()
	if _, _, err := readYAML(text); err != nil {
		t.Fatal(err)
	}
	alone := time.Since(start)
	start = time.Now()
	work()
	took := time.Since(start)
	t.Logf("%d bytes: %v, of which YAML %v", len(text), took, alone)
	if took > 2*time.Second && took > 25*alone {
		t.Errorf("took %v, the YAML parser alone %v", took, alone)
	}
}

// 10,000 jobs are loaded and checked within 2 s. The race detector gets fewer.
func TestTenThousandJobs(t *testing.T) {
	n := 10_000 / slow
	text := manyJobs(n)
	inTime(t, text, func() {
		jobs, ps, err := ParseSchedule("s", text)
		if err != nil || len(ps) > 0 || len(jobs) != n {
			t.Fatalf("%d jobs, %d problems, %v", len(jobs), len(ps), err)
		}
	})
}

// As many mistakes do not take longer than as many jobs.
func TestTenThousandMistakes(t *testing.T) {
	n := 10_000 / slow
	text := bytes.ReplaceAll(manyJobs(n/2), []byte("deadline: 1h"), []byte("deadline: 1"))
	text = bytes.ReplaceAll(text, []byte("owner"), []byte("onwer"))
	inTime(t, text, func() {
		if _, ps, err := ParseSchedule("s", text); err == nil || len(ps) != n {
			t.Fatalf("%d problems", len(ps))
		}
	})
}

func BenchmarkTenThousandJobs(b *testing.B) {
	text := manyJobs(10_000)
	for b.Loop() {
		if _, _, err := ParseSchedule("s", text); err != nil {
			b.Fatal(err)
		}
	}
}

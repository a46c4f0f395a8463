package guardian

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How a guardian is told from an ordinary start of the binary, and where its
// pipes are.
const (
	childArg0   = "solobeat-guardian"
	childEnv    = "SOLOBEAT_GUARDIAN"
	controlFD   = 3
	statusFD    = 4
	maxSpecSize = 16 << 20
)

// Frames from the caller to the guardian.
const (
	frameDeadline  = 'D' // a: CLOCK_BOOTTIME ns, b: wall clock ns; 0, 0: none
	frameKill      = 'K'
	frameTerminate = 'T' // a: CLOCK_BOOTTIME ns at which KILL follows
)

// Frames from the guardian to the caller.
const (
	frameStarting = 'A' // from here on the program may have run
	frameStarted  = 'P' // a: the program's process id
	frameFailed   = 'E' // a: errno, b: stage
	frameExited   = 'X' // a: wait status of the program
	frameKilling  = 'C' // a: reason; the order to kill, or the deadline, has been acted upon
	frameGone     = 'G' // a: reason; nothing of the tree is left
)

// Stages of frameFailed.
const (
	stageGuardian = iota
	stageChdir
	stageExec
)

// frame is one message of either pipe, far below PIPE_BUF so that a write is
// never torn.
type frame struct {
	kind byte
	a, b int64
}

const frameSize = 17

func (f frame) write(w io.Writer) error {
	buf := []byte{f.kind}
	buf, err := binary.Append(buf, binary.BigEndian, [2]int64{f.a, f.b})
	if err != nil {
		return err
	}
	_, err = w.Write(buf)
	return err
}

func readFrame(r io.Reader) (frame, error) {
	var buf [frameSize]byte
	if _, err := io.ReadFull(r, buf[:]); err != nil {
		return frame{}, err
	}
	var v [2]int64
	if _, err := binary.Decode(buf[1:], binary.BigEndian, &v); err != nil {
		return frame{}, err
	}
	return frame{kind: buf[0], a: v[0], b: v[1]}, nil
}

// spec is what the guardian starts; it goes first down the pipe, so that the
// program's environment is not the guardian's.
type spec struct {
	path, dir string
	argv, env []string
	// boot and wall are the first deadline; 0, 0: none.
	boot, wall int64
}

// specHeader precedes the strings, which are ended by NUL each: path, dir,
// arguments, environment. (JSON would change what is no UTF-8.)
type specHeader struct {
	Boot, Wall       int64
	Args, Env, Bytes int64
}

func (s *spec) encode() ([]byte, error) {
	var text []byte
	for _, group := range [][]string{{s.path, s.dir}, s.argv, s.env} {
		for _, v := range group {
			if strings.IndexByte(v, 0) >= 0 {
				return nil, fmt.Errorf("an argument, or a value of the environment, holds a NUL byte: %w", syscall.EINVAL)
			}
			text = append(append(text, v...), 0)
		}
	}
	if len(text) > maxSpecSize {
		return nil, fmt.Errorf("arguments and environment have %d bytes: %w", len(text), syscall.E2BIG)
	}
	buf, err := binary.Append(nil, binary.BigEndian, specHeader{
		Boot: s.boot, Wall: s.wall,
		Args: int64(len(s.argv)), Env: int64(len(s.env)), Bytes: int64(len(text)),
	})
	return append(buf, text...), err
}

func readSpec(r io.Reader) (*spec, error) {
	var h specHeader
	if err := binary.Read(r, binary.BigEndian, &h); err != nil {
		return nil, err
	}
	if h.Bytes < 0 || h.Bytes > maxSpecSize {
		return nil, syscall.E2BIG
	}
	text := make([]byte, h.Bytes)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	parts := strings.Split(string(text), "\x00")
	if h.Args < 0 || h.Env < 0 || int64(len(parts)) != 2+h.Args+h.Env+1 {
		return nil, syscall.EINVAL
	}
	return &spec{
		path: parts[0], dir: parts[1],
		argv: parts[2 : 2+h.Args], env: parts[2+h.Args : 2+h.Args+h.Env],
		boot: h.Boot, wall: h.Wall,
	}, nil
}

// bootNow reads CLOCK_BOOTTIME, which goes on while the machine is suspended.
func bootNow() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("guardian: no CLOCK_BOOTTIME: " + err.Error())
	}
	return ts.Nano()
}

// instants converts a deadline to both clocks. CLOCK_BOOTTIME is read before
// the time that is left is reckoned: a stop between the two makes the result
// too early, never too late.
func instants(deadline time.Time) (boot, wall int64) {
	if deadline.IsZero() {
		return 0, 0
	}
	boot = bootNow()
	boot += int64(until(deadline, time.Now()))
	return max(boot, 1), deadline.UnixNano()
}

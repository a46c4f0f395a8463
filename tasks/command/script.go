package command

import (
	"path"
	"slices"
	"strings"
)

// dialect tells where a program that interprets text expects it.
type dialect struct {
	// text are the short options whose value is a script, long the long ones.
	text string
	long []string
	// value are the short options with another value, longValue the long ones
	// that take it from the next argument.
	value     string
	longValue []string
	// file are the short options that name a script file.
	file string
	// last are the short options behind whose value the script's own arguments
	// begin.
	last string
	// operand: the first operand is the script, unless a text or file option
	// stands before it.
	operand bool
	// pending: a text option makes the first operand the script, wherever it
	// stands.
	pending bool
	// single: behind the script its own arguments begin.
	single bool
	// permute: options may follow operands.
	permute bool
	// all: whatever follows is handed to a shell.
	all bool
}

// dialectOf knows programs by their base name without version.
func dialectOf(program string) (dialect, bool) {
	name := strings.TrimSuffix(path.Base(strings.ReplaceAll(program, `\`, "/")), ".exe")
	name = strings.TrimRight(name, "-.0123456789")
	switch name {
	case "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "pdksh", "yash", "rbash", "fish", "csh", "tcsh":
		return dialect{
			text: "c", long: []string{"--command", "--init-command"}, pending: true, single: true,
			value: "oO", longValue: []string{"--rcfile", "--init-file"},
		}, true
	case "su", "runuser", "script", "flock":
		return dialect{text: "c", long: []string{"--command", "--session-command"}, permute: true}, true
	case "python", "pypy":
		return dialect{text: "c", single: true, value: "WX", last: "m", longValue: []string{"--check-hash-based-pycs"}}, true
	case "perl":
		return dialect{text: "eE"}, true
	case "ruby":
		return dialect{text: "e", value: "CEIr"}, true
	case "node", "nodejs", "bun", "deno":
		return dialect{
			text: "ep", long: []string{"--eval", "--print"},
			value: "rC", longValue: []string{"--require", "--import", "--loader", "--experimental-loader", "--conditions", "--env-file"},
		}, true
	case "php":
		return dialect{text: "rBRE", long: []string{"--run", "--process-begin", "--process-code", "--process-end"}, value: "cdz", file: "fF"}, true
	case "lua", "luajit", "Rscript", "R", "julia", "osascript", "groovy", "elixir":
		return dialect{text: "eE", long: []string{"--eval", "--print", "--execute"}, value: "l"}, true
	case "pwsh", "powershell", "cmd", "ssh", "rsh", "watch", "parallel":
		return dialect{all: true}, true
	case "awk", "gawk", "mawk", "nawk":
		return dialect{text: "e", long: []string{"--source"}, value: "vF", file: "f", longValue: []string{"--assign"}, operand: true}, true
	case "sed", "gsed":
		return dialect{text: "e", long: []string{"--expression"}, value: "l", file: "f", operand: true, permute: true}, true
	case "psql":
		return dialect{text: "c", long: []string{"--command"}, value: "dhpUvfLoFPRT", permute: true}, true
	case "mysql", "mariadb":
		return dialect{text: "e", long: []string{"--execute", "--init-command"}, value: "uhPDS", permute: true}, true
	case "env":
		return dialect{text: "S", long: []string{"--split-string"}, value: "uC"}, true
	default:
		return dialect{}, false
	}
}

// templated reports whether an argument has a template in it.
func templated(arg string) bool { return strings.Contains(arg, "{{") }

// scriptTemplate returns the argument in which a template stands inside a
// script text, or whose value could make one of what follows, or -1. It looks
// for interpreters anywhere, since they may stand behind env, timeout or
// docker exec.
func scriptTemplate(argv []string) int {
	for i := 0; i < len(argv); i++ {
		if templated(argv[i]) {
			continue
		}
		d, ok := dialectOf(argv[i])
		if !ok {
			continue
		}
		s := scan{dialect: d, options: true}
		at, bad := s.run(argv[i+1:])
		switch {
		case bad:
			return i + 1 + at
		case s.pending && s.given:
			i += 1 + at + 1 // the name after a shell's script is no program
		}
	}
	return -1
}

// scan is the state of reading an interpreter's arguments.
type scan struct {
	dialect
	// options: options may still come. next: a script is expected. skip: the
	// value of another option is. given: a script or file has been given.
	options, next, skip, given bool
	// end: after the value that is skipped the script's own arguments begin.
	end bool
}

// run reads up to a template where a script is, or to the first of the
// script's own arguments, and returns how far it came.
func (s *scan) run(args []string) (at int, bad bool) {
	for i, arg := range args {
		bad, done := s.read(arg)
		if bad || done {
			return i, bad
		}
	}
	return len(args), false
}

// read takes one argument; bad is a template where a script is, done means
// that the script's own arguments follow.
func (s *scan) read(arg string) (bad, done bool) {
	option := s.options && len(arg) > 1 && arg[0] == '-'
	switch {
	case s.all:
		return templated(arg), false
	case s.skip:
		s.skip = false
		return false, s.end
	case s.next && !(s.pending && option):
		s.next = false
		return templated(arg), s.single
	case option && arg == "--":
		s.options = false
		return false, false
	case option && strings.HasPrefix(arg, "--"):
		return s.longOption(arg), false
	case option:
		return s.shortOptions(arg[1:]), false
	case s.operand && !s.given:
		s.given = true
		return templated(arg), !s.permute
	default:
		// What is rendered to "-c" would make a script of the next argument.
		return s.options && strings.HasPrefix(arg, "{{"), !s.permute
	}
}

func (s *scan) longOption(arg string) (bad bool) {
	name, value, attached := strings.Cut(arg, "=")
	if slices.Contains(s.long, name) {
		s.given = true
		s.next = s.next || !attached
		return templated(value)
	}
	s.skip = !attached && slices.Contains(s.longValue, name)
	return templated(name)
}

// shortOptions reads a cluster such as "lc" or "ne".
func (s *scan) shortOptions(letters string) (bad bool) {
	for i, letter := range letters {
		rest := letters[i+1:]
		switch {
		case letter == '{':
			return templated(letters)
		case strings.ContainsRune(s.text, letter):
			s.given = true
			if !s.pending {
				s.next = rest == ""
				return templated(rest)
			}
			s.next = true
		case strings.ContainsRune(s.file, letter):
			s.given, s.skip = true, rest == ""
			return false
		case strings.ContainsRune(s.last, letter):
			s.skip, s.end = true, true
			return templated(rest)
		case strings.ContainsRune(s.value, letter):
			s.skip = rest == ""
			return false
		}
	}
	return false
}

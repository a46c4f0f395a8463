package command

import (
	"strings"
	"testing"
)

func TestScriptTemplate(t *testing.T) {
	t.Parallel()
	const x = "{{.Params.x}}"
	for _, c := range []struct {
		argv string // blanks separate, ~ stands for a blank
		bad  int
	}{
		{"./report --day X", -1},
		{"./report X", -1},
		{"sh -c echo~X", 2},
		{"/bin/sh -c echo~X", 2},
		{"sh -c X", 2},
		{"bash -lc echo~X", 2},
		{"bash -ce echo~X", 2},
		{"bash -c -e echo~X", 3},
		{"bash -o pipefail -c echo~X", 4},
		{"bash -c -- echo~X", 3},
		{"dash -c echo~$1 sh X", -1},
		{"dash -c exec~$@ sh bash -c X", 6},
		{"sh script.sh bash -c X", 4},
		{"zsh script.sh X", -1},
		{"zsh -x script.sh -c X", -1},
		{"ksh X", 1},
		{"ksh X X", 1},
		{"ksh scripts/X.sh X", -1},
		{"ksh -- X", -1},
		{"sh -X foo", 1},
		{"bash --rcfile f -c X", 4},
		{"fish --command=X", 1},
		{"python -c print('X')", 2},
		{"python3.11 -c print('X')", 2},
		{"python3 -Ic print('X')", 2},
		{"python3 -cprint('X')", 1},
		{"python3 -u script.py --day X", -1},
		{"python3 -W ignore script.py X", -1},
		{"python3 -W ignore -c X", 4},
		{"python3 -m pkg.report X -c X", -1},
		{"python3 -m X", -1},
		{"python3 -c print(1) X", -1},
		{"perl -e print~X", 2},
		{"perl -ne print~X file", 2},
		{"perl -E'say~X'", 1},
		{"perl -e 1 -e X", 4},
		{"ruby -e X", 2},
		{"ruby -r json -e X", 4},
		{"node -e X", 2},
		{"node --eval X", 2},
		{"node --eval=X", 1},
		{"node --require ./a.js -pe X", 4},
		{"node app.js --day=X", -1},
		{"node --title=X app.js", -1},
		{"php -r X", 2},
		{"awk {print~X} file", 1},
		{"awk -v x=X {print~x} file", -1},
		{"awk -vx=X {print~x}", -1},
		{"awk -f p.awk data/X", -1},
		{"sed s/a/X/ file", 1},
		{"sed -n -e s/a/b/ -e s/c/X/", 5},
		{"sed -f s.sed data/X", -1},
		{"psql mydb -c select~X", 3},
		{"psql -d db --command=X", 3},
		{"psql -v x=X -f q.sql", -1},
		{"mysql -u me -e X db", 4},
		{"ssh host ls X", 3},
		{"env A=1 sh -c X", 4},
		{"env -S sh~-c~X", 2},
		{"timeout 5 bash -c X", 4},
		{"docker exec c sh -c echo~X", 5},
		{"flock /tmp/l -c X", 3},
		{"su me -c X", 3},
		{"C:\\bin\\bash.exe -c X", 2},
	} {
		argv := strings.Split(strings.ReplaceAll(c.argv, "X", x), " ")
		for i := range argv {
			argv[i] = strings.ReplaceAll(argv[i], "~", " ")
		}
		if got := scriptTemplate(argv); got != c.bad {
			t.Errorf("%s: argument %d, want %d", c.argv, got, c.bad)
		}
	}
}

// Package typo finds the word that was probably meant.
package typo

import "strings"

// longest bounds the work on a word from outside, in bytes.
const longest = 100

// Nearest returns the name that differs from word by at most a quarter of its
// letters and one, three at most, case and "-" for "_" apart; "" if none does,
// and the first of several that are equally near.
func Nearest(word string, names []string) string {
	if len(word) > longest {
		return ""
	}
	word = fold(word)
	best, limit := "", min(3, 1+len(word)/4)+1
	for _, n := range names {
		if d := Distance(word, fold(n)); d < limit {
			best, limit = n, d
		}
	}
	return best
}

func fold(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "_")) }

// OneEdit reports whether two words differ by one byte that is inserted,
// dropped, changed or swapped with the next. It takes a look at each byte, for
// where many words meet many.
func OneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || a == b {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	j := 0 // equal bytes at the end, behind the first difference
	for j < len(a)-i && a[len(a)-1-j] == b[len(b)-1-j] {
		j++
	}
	left, right := a[i:len(a)-j], b[i:len(b)-j]
	return len(right) == 1 || len(left) == 2 && len(right) == 2 && left[0] == right[1] && left[1] == right[0]
}

// Distance counts the bytes to insert, drop, change or swap with the next to
// make b of a (optimal string alignment).
func Distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

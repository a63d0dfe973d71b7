// Package spelling finds the words that a misspelt one may mean.
package spelling

import (
	"slices"
	"strings"
)

// DidYouMean is advice on a word that is not in known, such as `, did you mean "doctor"?`; empty if no known word is
// similar.
func DidYouMean(word string, known []string) string {
	within := len([]rune(word))/3 + 1
	if strings.HasPrefix(word, "-") {
		within = max(within-1, 1)
	}
	like := Nearest(word, known, within)
	if len(like) == 0 || len(like) > 3 {
		return ""
	}
	return ", did you mean " + strings.Join(like, " or ") + "?"
}

// Nearest lists the known words that differ least from word, and in at most so many letters.
func Nearest(word string, known []string, within int) (like []string) {
	best := within
	for _, k := range known {
		if k == "" || slices.Contains(like, k) {
			continue
		}
		switch d := distance(word, k); {
		case d < best:
			best, like = d, []string{k}
		case d == best:
			like = append(like, k)
		}
	}
	return like
}

// distance is how many letters must be changed, added, left out, or exchanged with a neighbour, to turn a into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

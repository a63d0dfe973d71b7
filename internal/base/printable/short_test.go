package printable

import (
	"fmt"
	"strings"
	"testing"
)

// The part of a file that a message repeats is bounded.
func TestShort(t *testing.T) {
	for n, want := range map[int]int{0: 0, maxQuoted: maxQuoted, maxQuoted + 1: maxQuoted + len("…"),
		1 << 20: maxQuoted + len("…")} {
		if got := len(Short(strings.Repeat("x", n))); got != want {
			t.Error(fmt.Sprint(n), got)
		}
	}
}

package job

import "testing"

// The line names the hosts with the most missing ranks.
func TestAwaited(t *testing.T) {
	for _, c := range []struct {
		away map[string]int
		want string
	}{
		{map[string]int{"b": 1, "a": 1}, "; missing: 1 on a, 1 on b"},
		{map[string]int{"b": 1, "a": 1, "": 3}, "; missing: 3 not started, 1 on a, 1 on b"},
		{map[string]int{"a": 8, "b": 7, "c": 6, "d": 5, "e": 4, "f": 9},
			"; missing: 9 on f, 8 on a, 7 on b, 6 on c, and on 2 more hosts"},
	} {
		if got := awaited(c.away); got != c.want {
			t.Errorf("%v: %q, want %q", c.away, got, c.want)
		}
	}
}

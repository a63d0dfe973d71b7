package overview

import (
	"testing"
	"time"
)

// An operation that waits for long lacks somebody, also where no rank is surely missing.
func TestAWaitingOperationLacksSomebody(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		g    group
		want string
	}{
		"known":            {group{waiters: []int{0, 1}, missing: []int{3}, last: start.Add(time.Minute)}, "3"},
		"not known":        {group{waiters: []int{0, 2}, last: start.Add(time.Minute)}, "1, 3"},
		"not for long":     {group{waiters: []int{0, 2}, last: start.Add(time.Second / 2)}, ""},
		"executing":        {group{waiters: []int{0, 2}, executing: true, last: start.Add(time.Minute)}, ""},
		"of a process set": {group{waiters: []int{0, 2}, set: 1, last: start.Add(time.Minute)}, ""},
	} {
		j := &Job{ranks: make([]rank, 4)}
		c.g.start = start
		if got := j.openOf([]*group{&c.g}); got[0].Missing != c.want {
			t.Errorf("%s: missing %q, want %q", name, got[0].Missing, c.want)
		}
	}
}

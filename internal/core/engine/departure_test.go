package engine

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// A rank that leaves is the cause on every rank and in every set. The ranks that it makes leave close their logs in
// turn, but are not the cause.
func TestTheFirstToLeaveIsTheCauseInAllSets(t *testing.T) {
	const leaves = 1
	worlds := map[string]func() []*Engine{
		"shared": func() []*Engine { return newWorld(t, 4, true, nil) },
		"hosts":  func() []*Engine { return newHosts(t, [][]int{{0, 1}, {2, 3}}, nil) },
	}
	for name, make := range worlds {
		for range 10 {
			engines := make()
			each(engines, func(r int, e *Engine) { leaveAmongSets(t, name, e, leaves) })
		}
	}
}

// leaveAmongSets is a rank's program: it makes two pairs. One rank of each waits for the other when a rank leaves.
func leaveAmongSets(t *testing.T, name string, e *Engine, leaves int) {
	r := e.opts.Rank
	pairs := [2]int{}
	for i, members := range [][]int{{0, 1}, {2, 3}} {
		id, err := e.AddSet(members)
		if err != nil {
			t.Error(err)
		}
		pairs[i] = id
	}
	if r == leaves {
		e.Shutdown(limit)
		return
	}
	op := sum("never", floats(1))
	if r%2 == 0 {
		op.Set = pairs[r/2]
	}
	err := do(t, e, op)
	e.Shutdown(limit) // like a program that gives up
	want := LeftText(fmt.Sprintf("rank %d has shut down", leaves)) + " ["
	if view := fmt.Sprintf("seen by rank %d: ALLREDUCE %q w", r, "never"); err == nil ||
		!strings.HasPrefix(err.Reason, want) || !strings.Contains(err.Reason, view) {
		t.Errorf("%s: rank %d is told %v", name, r, err)
	}
}

// Options.Left is called once for the operations of all sets. If nothing is pending, it is called only for the first
// operation that is submitted later.
func TestLeftIsAskedWhenTheWordsAreNeeded(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	engines := newWorld(t, 2, true, func(o *Options) {
		o.Left = func(rank int, view string) string {
			mu.Lock()
			defer mu.Unlock()
			asked[fmt.Sprint("rank ", rank)]++
			if !strings.HasSuffix(view, `seen by rank 0: ALLREDUCE "y" was submitted]`) {
				t.Errorf("the view is %q", view)
			}
			return "the words for all"
		}
	})
	each(engines, func(_ int, e *Engine) {
		if err := do(t, e, sum("x", floats(1))); err != nil {
			t.Error(err)
		}
	})
	engines[1].Shutdown(limit)
	e := engines[0]
	for e.departure.Load() == nil { // the background goroutine is woken for this
		e.Wake()
	}
	if len(asked) > 0 || e.Failure() != nil {
		t.Errorf("asked %v although no operation was pending; failure %v", asked, e.Failure())
	}
	for range 2 {
		if err := do(t, e, sum("y", floats(1))); err == nil || !strings.Contains(err.Reason, "the words for all") {
			t.Error(err)
		}
	}
	if asked["rank 1"] != 1 || len(asked) != 1 {
		t.Errorf("asked %v", asked)
	}
	if f := e.Failure(); f == nil || f.Reason != "the words for all" {
		t.Errorf("failure %v", f)
	}
}

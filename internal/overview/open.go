package overview

import (
	"cmp"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/feed"
)

// Open is an operation in flight.
type Open struct {
	Name    string  `json:"name"`
	Op      string  `json:"op"`
	Set     int     `json:"set"`
	Age     float64 `json:"age"` // seconds
	State   string  `json:"state"`
	Waits   string  `json:"waits"`   // ranks that have submitted it
	Missing string  `json:"missing"` // ranks that have not, as far as is known
}

// mostOpen is how many operations a Snapshot has.
const mostOpen = 20

// group is one operation on all ranks.
type group struct {
	set       int
	name, op  string
	start     time.Time // of the first submission
	last      time.Time // when a rank told of it last
	waiters   []int
	executing bool
	missing   []int
	silent    []int // of missing: do not answer
	unready   []int // of missing: have submitted it, and its input is not there
}

// certain is by how much a rank must have told later than the start of an operation that it lacks.
const certain = 200 * time.Millisecond

// groups are the operations that the ranks told of last, those that wait before those that are executed, the oldest
// first. A rank that lacks an operation of all ranks is missing, unless its list is not complete or is too old.
func (j *Job) groups(now time.Time) []*group {
	type key struct {
		set  int
		name string
	}
	byKey := map[key]*group{}
	for i := range j.ranks {
		r := &j.ranks[i]
		if r.last == nil || now.Sub(r.told) >= silence {
			continue
		}
		for _, w := range r.last.Waits {
			k := key{w.Set, w.Name}
			g, start := byKey[k], r.told.Add(-time.Duration(w.Age))
			if g == nil {
				g = &group{set: w.Set, name: w.Name, op: w.Op, start: start}
				byKey[k] = g
			}
			if w.Phase == feed.Unready {
				g.unready = append(g.unready, i)
				continue
			}
			if start.Before(g.start) {
				g.start = start
			}
			if r.told.After(g.last) {
				g.last = r.told
			}
			g.waiters = append(g.waiters, i)
			g.executing = g.executing || w.Phase == feed.Executing
		}
	}
	var all []*group
	for _, g := range byKey {
		if len(g.waiters) == 0 {
			continue
		}
		if g.set == 0 && !g.executing {
			j.findMissing(now, g)
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *group) int {
		return cmp.Or(compareBool(a.executing, b.executing), a.start.Compare(b.start), cmp.Compare(a.name, b.name))
	})
	return all
}

// findMissing finds who lacks an operation.
func (j *Job) findMissing(now time.Time, g *group) {
	for i := range j.ranks {
		r := &j.ranks[i]
		switch {
		case slices.Contains(g.waiters, i):
		case r.last == nil || now.Sub(r.told) >= silence:
			if now.Sub(g.start) >= silence {
				g.missing, g.silent = append(g.missing, i), append(g.silent, i)
			}
		case slices.Contains(g.unready, i):
			g.missing = append(g.missing, i)
		case r.told.Sub(g.start) >= certain && uint64(len(r.last.Waits)) == r.last.Pending:
			g.missing = append(g.missing, i)
		}
	}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// openOf are the first groups for a Snapshot.
func openOf(groups []*group) []Open {
	list := []Open{}
	for _, g := range groups[:min(len(groups), mostOpen)] {
		o := Open{Name: g.name, Op: g.op, Set: g.set, Age: g.last.Sub(g.start).Seconds(), State: "waits",
			Waits: numbers(g.waiters), Missing: numbers(g.missing)}
		if g.executing {
			o.State = "executes"
		}
		list = append(list, o)
	}
	return list
}

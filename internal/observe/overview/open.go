package overview

import (
	"cmp"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/observe/feed"
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

// mostOpen is the largest number of operations in a Snapshot.
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

// isJoin reports whether the operation is a join: its waiters have no more data, and nobody is late.
func (g *group) isJoin() bool { return g.op == joinLabel }

// joinLabel is how ranks call a join.
var joinLabel = operation.Join.String()

// certain is the least time from the start of an operation to an answer without it that shows that the rank lacks it.
const certain = 200 * time.Millisecond

// groups are the operations that the ranks told of last, those that wait before those that are executed, the oldest
// first. A rank that lacks an operation of a process set that it belongs to is missing, unless its list is not complete
// or is too old, or it has joined. Only the first mostOpen have such a list: a job whose ranks go apart has very many
// operations.
func (j *Job) groups(now time.Time) []*group {
	type key struct {
		set  int
		name string
	}
	byKey := map[key]*group{}
	role := make([]byte, len(j.ranks)) // what findMissing leaves out
	for i := range j.ranks {
		r := &j.ranks[i]
		if !j.fresh(r, now) {
			continue
		}
		for _, w := range r.last.Waits {
			if w.Set == 0 && w.Op == joinLabel {
				role[i] = hasJoined
			}
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
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *group) int {
		return cmp.Or(compareBool(a.executing, b.executing), a.start.Compare(b.start), cmp.Compare(a.name, b.name))
	})
	for _, g := range all[:min(len(all), mostOpen)] {
		if !g.executing && j.knowsMembers(g) {
			j.findMissing(now, g, role)
		}
	}
	return all
}

// The roles of a rank in an operation, for findMissing.
const (
	hasJoined = 1 << iota // takes part in all operations
	waits
	isUnready
)

// findMissing finds the ranks that lack an operation. role has hasJoined for ranks that have joined. The rest is
// scratch.
func (j *Job) findMissing(now time.Time, g *group, role []byte) {
	mark := func(ranks []int, as byte) {
		for _, i := range ranks {
			role[i] ^= as
		}
	}
	mark(g.waiters, waits)
	mark(g.unready, isUnready)
	defer mark(g.waiters, waits)
	defer mark(g.unready, isUnready)
	for i := range j.ranks {
		r := &j.ranks[i]
		switch {
		case role[i]&waits != 0 || role[i]&hasJoined != 0 && g.set == 0 && !g.isJoin() || !r.isIn(g.set):
		case j.isSilent(r, now):
			if now.Sub(g.start) >= silence {
				g.missing, g.silent = append(g.missing, i), append(g.silent, i)
			}
		case !j.fresh(r, now):
		case role[i]&isUnready != 0:
			g.missing = append(g.missing, i)
		case r.told.Sub(g.start) >= certain && uint64(len(r.last.Waits)) == r.last.Pending:
			g.missing = append(g.missing, i)
		}
	}
}

// knowsMembers reports whether the ranks have told which of them belong to the operation's process set. An answer from
// before the operation may be of an earlier set with its number.
func (j *Job) knowsMembers(g *group) bool {
	return g.set == 0 || !slices.ContainsFunc(j.ranks, func(r rank) bool {
		if r.last == nil {
			return true
		}
		_, known := r.last.InSet(g.set)
		return !known || r.told.Before(g.start)
	})
}

// isIn reports whether a rank has told that it belongs to a process set.
func (r *rank) isIn(set int) bool {
	if set == 0 {
		return true
	}
	member, _ := r.last.InSet(set)
	return member
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

// lacking are the ranks that lack g: those that are surely missing; or after some time, if these are not known, all
// that have not told of it, for instance because they have not answered since. A rank whose list is not complete may
// wait for it, too, and one that has joined lacks nothing.
func (j *Job) lacking(g *group) []int {
	if len(g.missing) > 0 || g.executing || g.set != 0 || g.last.Sub(g.start) < patient {
		return g.missing
	}
	var others []int
	for i := range j.ranks {
		last := j.ranks[i].last
		may := last != nil && (uint64(len(last.Waits)) != last.Pending || slices.ContainsFunc(last.Waits,
			func(w feed.Wait) bool { return w.Op == joinLabel }))
		if !may && !slices.Contains(g.waiters, i) {
			others = append(others, i)
		}
	}
	return others
}

// openOf returns the first groups, for a Snapshot. The caller holds mu.
func (j *Job) openOf(groups []*group) []Open {
	list := []Open{}
	for _, g := range groups[:min(len(groups), mostOpen)] {
		o := Open{Name: g.name, Op: g.op, Set: g.set, Age: g.last.Sub(g.start).Seconds(), State: "waits",
			Waits: numbers(g.waiters), Missing: numbers(j.lacking(g))}
		if g.executing {
			o.State = "executes"
		}
		list = append(list, o)
	}
	return list
}

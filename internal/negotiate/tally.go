package negotiate

import "slices"

// tally collects the Requests of one name until all members have sent theirs or
// have joined.
type tally struct {
	name string
	seq  uint64     // order of the first Requests, for reports
	reqs []*Request // by member; nil: missing
	n    int        // how many are not nil
	held bool       // complete; waits for its group
	// one is the Request that came first. Those that repeat it share it, so
	// that a name costs one copy however many members the lane has.
	one *Request
}

// add enters member's Request; false if it is there already. r is copied
// unless the tally may keep it.
func (t *tally) add(member int, r *Request, keep bool) bool {
	if t.reqs[member] != nil {
		return false
	}
	switch {
	case t.one != nil && r.repeats(t.one):
		r = t.one
	case !keep:
		c := *r
		c.Shape = slices.Clone(r.Shape)
		c.Ranks = slices.Clone(r.Ranks)
		r = &c
	}
	if t.one == nil {
		t.one = r
	}
	t.reqs[member] = r
	t.n++
	return true
}

// first is the Request of the lowest member that has sent one.
func (t *tally) first() *Request { return firstOf(t.reqs) }

// absent lists the members without a Request, ascending.
func (t *tally) absent() []int32 { return absentOf(t.reqs) }

// reset empties t, for another name.
func (t *tally) reset() {
	clear(t.reqs)
	t.name, t.seq, t.n, t.held, t.one = "", 0, 0, false, nil
}

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
	// one is the Request that came first. Members that repeat it share it. So a name costs one copy, however many
	// members the lane has.
	one *Request
}

// add enters the members' Request. It returns a member whose Request is already there, or -1. It copies r unless keep
// is set.
func (t *tally) add(members []int, r *Request, keep bool) (again int) {
	for _, m := range members {
		if t.reqs[m] != nil {
			return m
		}
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
	for _, m := range members {
		t.reqs[m] = r
	}
	t.n += len(members)
	return -1
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

package negotiate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gorovod/gorovod/internal/base/operation"
)

// Combiner merges the Requests of the lane members below one leader, on their way to the Coordinator. It holds the
// Requests for a name until all of these members have asked for it or have joined. Then it passes on each wording once,
// with all members that have sent it.
//
// The Coordinator never needs a Request while a Combiner holds it. It answers a name only after every member has asked
// for it or has joined; by then the Combiner holds nothing for that name. Before that, the Coordinator does only one
// thing for the name: it retires the card, so that the members that have marked it ask in full. So the Combiner passes
// these Requests on at once:
//
//	a Contested Request  the Coordinator must retire the card
//	Settle               a member waits for itself alone
//	Join                 after everything held, because a member's Requests must not come after its Join
//
// (A name gets no card while the Combiner holds a Request for it: only the Response to its present round can give it
// one.)
//
// So Requests of one member for different names may change places. The Coordinator uses their order only to answer a
// group, or the names that a Join completes, in some order that is the same on all members.
//
// In each round of a name every member that has not joined asks once, in full or by a mark. If one asks in full, all
// do: the board drops the name's marks below a leader when its card is retired, and they come back to their members.
// So rounds need no numbers: a round ends here when all members have asked or joined.
//
// A Combiner is not safe for concurrent use. It implements transport.Combiner.
type Combiner struct {
	members []int       // ascending
	place   map[int]int // of a member among members
	joined  []bool      // by place
	joins   int         // how many are true

	open    map[string]*asked
	opened  uint64   // how many rounds have been opened ever
	spare   []*asked // empty, for reuse
	request Request  // decoded by Take
}

// asked holds the Requests for one name in its present round.
type asked struct {
	name string
	by   []bool // by place
	n    int    // how many of by are true
	sets bool   // all Requests so far change process sets, so joined members ask, too
	held []variant
	seq  uint64 // order of the first Requests
}

// variant is a Request in one wording, with the waiting members that have sent it.
type variant struct {
	members []int
	request []byte
}

// NewCombiner makes the Combiner of the given lane members, ascending.
func NewCombiner(members []int) *Combiner {
	c := &Combiner{members: slices.Clone(members), place: make(map[int]int, len(members)),
		joined: make([]bool, len(members)), open: make(map[string]*asked)}
	for i, m := range members {
		c.place[m] = i
	}
	return c
}

// Take takes a Request, and calls pass for each Request that goes on now.
func (c *Combiner) Take(from []int, request []byte, pass func(from []int, request []byte)) error {
	r := &c.request
	if err := r.Decode(request); err != nil {
		return err
	}
	for _, m := range from {
		if _, ok := c.place[m]; !ok {
			return fmt.Errorf("request %q: member %d has another way", r.Name, m)
		}
	}
	c.rejoin(from, r)
	switch r.Type {
	case operation.Settle:
		pass(from, request)
		return nil
	case operation.Join:
		c.join(from, pass)
		pass(from, request)
		return nil
	}
	a := c.asked(r.Name)
	for _, m := range from {
		i := c.place[m]
		if a.by[i] {
			return fmt.Errorf("request %q: member %d sent it again before its end", r.Name, m)
		}
		a.by[i] = true
	}
	a.n += len(from)
	a.sets = a.sets && r.Type.ChangesSets()
	if r.Contested {
		pass(from, request)
	} else {
		a.hold(from, request)
	}
	if c.complete(a) {
		a.release(pass)
		c.drop(a)
	}
	return nil
}

// rejoin forgets all joins as soon as a member that has joined asks again: that member has seen that all had joined.
func (c *Combiner) rejoin(from []int, r *Request) {
	if c.joins == 0 || r.Type.ChangesSets() {
		return
	}
	for _, m := range from {
		if c.joined[c.place[m]] {
			clear(c.joined)
			c.joins = 0
			return
		}
	}
}

// join releases everything held, and notes that the members from ask for nothing more.
func (c *Combiner) join(from []int, pass func([]int, []byte)) {
	for _, m := range from {
		c.joined[c.place[m]] = true
		c.joins++
	}
	inOrder := func(a, b *asked) int { return cmp.Compare(a.seq, b.seq) }
	for _, a := range slices.SortedFunc(maps.Values(c.open), inOrder) {
		a.release(pass)
		if c.complete(a) {
			c.drop(a)
		}
	}
}

// asked returns the open round of a name, opening one if there is none.
func (c *Combiner) asked(name string) *asked {
	if a := c.open[name]; a != nil {
		return a
	}
	var a *asked
	if n := len(c.spare); n > 0 {
		a, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		a = &asked{by: make([]bool, len(c.members))}
	}
	c.opened++
	a.name, a.sets, a.seq = name, true, c.opened
	c.open[name] = a
	return a
}

// complete reports whether all members that may still ask have asked.
func (c *Combiner) complete(a *asked) bool {
	if a.n == len(c.members) {
		return true
	}
	if a.n+c.joins < len(c.members) || a.sets {
		return false
	}
	for i, asked := range a.by {
		if !asked && !c.joined[i] {
			return false
		}
	}
	return true
}

// drop ends a round.
func (c *Combiner) drop(a *asked) {
	delete(c.open, a.name)
	clear(a.by)
	a.name, a.n = "", 0
	c.spare = append(c.spare, a)
}

// hold adds a Request to those with the same wording.
func (a *asked) hold(from []int, request []byte) {
	for i := range a.held {
		if v := &a.held[i]; string(v.request) == string(request) {
			v.members = append(v.members, from...)
			return
		}
	}
	if len(a.held) < cap(a.held) {
		a.held = a.held[:len(a.held)+1]
	} else {
		a.held = append(a.held, variant{})
	}
	v := &a.held[len(a.held)-1]
	v.members = append(v.members[:0], from...)
	v.request = append(v.request[:0], request...)
}

// release passes on everything held.
func (a *asked) release(pass func([]int, []byte)) {
	for i := range a.held {
		v := &a.held[i]
		slices.Sort(v.members)
		pass(v.members, v.request)
	}
	a.held = a.held[:0]
}

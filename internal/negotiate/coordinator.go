package negotiate

import (
	"cmp"
	"fmt"
	"slices"
)

// Slots is what the Coordinator needs of the lane's board; transport.Board
// implements it. Marks, Acquire and Retire must be atomic to one another.
type Slots interface {
	// Acquire returns a slot with a generation that it never had before. It may
	// take a slot that stands for another name, but not one that a member has
	// marked: that mark would be lost. False: there is none at this moment.
	Acquire() (slot, gen uint32, ok bool)
	// Retire ends the slot's generation and returns the lane members whose marks
	// count at this moment, each of which it takes back: such a mark is not
	// reported stale to its member, and all later marks of this generation are
	// refused. Marks that have already completed a round are not among them. Any
	// slot record of this generation is in the log before what is published next.
	Retire(slot uint32) (marked []int, ok bool)
}

// Coordinator decides what a lane executes next. It lives on the lane's member
// 0, sees each Request that was posted in full, and answers with a Response
// once every member has asked for the name.
//
// A name has a slot or an open tally, never both. While it has a slot, members
// announce it by marks that the Coordinator does not see. A Request in full for
// such a name means that its sender asks for something else than the slot
// stands for. Then the slot is retired, and the marks taken back are turned
// into the Requests that they stood for. These belong to the same round of the
// name as the Request, and to no other: the sender announces a round only after
// it has read the record of the previous one, so that one was complete, and
// every mark of it is gone; and the present round cannot complete without the
// sender. Hence a slot can be retired whenever the need arises, and Retire has
// no reason to fail. Members that mark later are refused, and post in full.
//
// A Coordinator is not safe for concurrent use.
type Coordinator struct {
	members []int // world ranks, for messages
	slots   Slots

	open   map[string]*tally
	opened uint64   // how many tallies have been opened ever
	spare  []*tally // empty ones, to be used again

	capacity int
	recent   *recent
	byName   map[string]*Response // names that have a slot
	bySlot   map[uint32]*Response // the same Responses

	out [1]*Response // what Step returned
}

// NewCoordinator makes the Coordinator of a lane whose members have the given
// world ranks, in ascending order. capacity is the number of slots of the
// board; 0 means that nothing is cached.
func NewCoordinator(members []int, capacity int, slots Slots) *Coordinator {
	return &Coordinator{
		members:  slices.Clone(members),
		slots:    slots,
		open:     make(map[string]*tally),
		capacity: capacity,
		recent:   newRecent(4*capacity + 64),
		byName:   make(map[string]*Response),
		bySlot:   make(map[uint32]*Response),
	}
}

// Step takes one Request of lane member from, and returns the Responses to
// publish, in order, before those of any later call. They must not be changed,
// and the slice is valid until the next call; r is the caller's again. An error is a
// violation of the protocol, by which the lane must be aborted.
func (c *Coordinator) Step(from int, r *Request) ([]*Response, error) {
	if from < 0 || from >= len(c.members) {
		return nil, fmt.Errorf("request %q: from member %d of %d", r.Name, from, len(c.members))
	}
	t, err := c.tallyFor(r.Name)
	if err != nil {
		return nil, err
	}
	if !t.add(from, r, false) {
		return nil, fmt.Errorf("request %q: rank %d sent it again before its end", r.Name, c.members[from])
	}
	if !t.complete() {
		return nil, nil
	}
	c.out[0] = c.conclude(t)
	delete(c.open, t.name)
	t.reset()
	c.spare = append(c.spare, t)
	return c.out[:], nil
}

// tallyFor returns the open tally of a name, opening one if there is none.
func (c *Coordinator) tallyFor(name string) (*tally, error) {
	if t := c.open[name]; t != nil {
		return t, nil
	}
	var t *tally
	if n := len(c.spare); n > 0 {
		t, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		t = &tally{reqs: make([]*Request, len(c.members))}
	}
	c.opened++
	t.name, t.seq = name, c.opened
	c.open[name] = t
	if resp := c.byName[name]; resp != nil {
		return t, c.retire(resp, t)
	}
	return t, nil
}

// retire takes resp's slot away and enters the marks that it had into t.
func (c *Coordinator) retire(resp *Response, t *tally) error {
	marked, ok := c.slots.Retire(resp.Slot)
	if !ok {
		return fmt.Errorf("request %q: its slot %d cannot be retired", resp.Name, resp.Slot)
	}
	c.forget(resp)
	for _, m := range marked {
		if m < 0 || m >= len(c.members) || !t.add(m, resp.request(m), true) {
			return fmt.Errorf("request %q: its slot %d has a false mark of member %d", resp.Name, resp.Slot, m)
		}
	}
	return nil
}

// conclude answers a complete tally.
func (c *Coordinator) conclude(t *tally) *Response {
	if text := c.validate(t.reqs); text != "" {
		first := t.reqs[0]
		return &Response{Type: first.Type, Err: text, DType: first.DType, Name: t.name, Device: first.Device, Slot: NoSlot}
	}
	resp := merge(t.reqs)
	if c.capacity > 0 {
		c.cache(resp)
	}
	return resp
}

// cache gives resp a slot if its name is seen for the second time.
func (c *Coordinator) cache(resp *Response) {
	if !c.recent.has(resp) {
		c.recent.put(resp)
		return
	}
	slot, gen, ok := c.slots.Acquire()
	if !ok {
		return
	}
	if evicted := c.bySlot[slot]; evicted != nil {
		c.forget(evicted)
	}
	resp.Slot, resp.Gen = slot, gen
	c.byName[resp.Name] = resp
	c.bySlot[slot] = resp
}

// forget notes that resp has lost its slot. When the name comes back with the
// same parameters it need not be seen twice again.
func (c *Coordinator) forget(resp *Response) {
	delete(c.byName, resp.Name)
	delete(c.bySlot, resp.Slot)
	c.recent.put(resp)
}

// Pending calls f for each name that some but not all members have asked for
// in full, in the order in which they were first asked for. present and missing
// are lane members, ascending, valid during the call only. Names that are
// announced by marks are not among them: the board knows those.
func (c *Coordinator) Pending(f func(name string, t RequestType, present, missing []int)) {
	tallies := make([]*tally, 0, len(c.open))
	for _, t := range c.open {
		tallies = append(tallies, t)
	}
	slices.SortFunc(tallies, func(a, b *tally) int { return cmp.Compare(a.seq, b.seq) })
	present := make([]int, 0, len(c.members))
	missing := make([]int, 0, len(c.members))
	for _, t := range tallies {
		present, missing = present[:0], missing[:0]
		for m, r := range t.reqs {
			if r != nil {
				present = append(present, m)
			} else {
				missing = append(missing, m)
			}
		}
		f(t.name, t.one.Type, present, missing)
	}
}

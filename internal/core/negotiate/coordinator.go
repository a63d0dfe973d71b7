package negotiate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gorovod/gorovod/internal/base/operation"
)

// Cards is the part of the lane's board that the Coordinator uses; transport.Coordination implements it. Marks, Acquire
// and Retire must be atomic with respect to one another.
type Cards interface {
	// Acquire returns a card with a generation that it never had before. It may take a card of another name, but not
	// one that a member has marked: that mark would be lost. ok is false if no card is free at this moment.
	Acquire() (card, gen uint32, ok bool)
	// Retire ends the card's generation, and returns the lane members whose marks it takes back.
	//
	//	a mark that Retire returns      is not reported stale to its member
	//	another mark that is under way  is reported stale, at the latest before its member reads the next record
	//	a mark that has completed a     is neither: its card record is in the log before the next record
	//	round already
	//	a later mark                    is refused
	Retire(card uint32) (marked []int, ok bool)
}

// Options are a lane's settings, the same for its whole life.
type Options struct {
	// Capacity is the number of cards of the board; 0 means that nothing is cached.
	Capacity int
	// JoinAllOps lets allgather, alltoall, broadcast and reducescatter go on
	// without the members that have joined; otherwise they fail, as in Horovod.
	JoinAllOps bool
	// FusionThreshold in bytes bounds a reducescatter that is to be prescaled.
	FusionThreshold int64
}

// Coordinator decides what a lane executes next. It lives on the lane's member
// 0, sees each Request that was posted in full, and answers with a Response
// once every member has asked for the name or has joined.
//
// A name has a card or an open tally, never both. While it has a card, members announce it by marks, which the
// Coordinator does not see. If a member posts a Request in full for such a name, the member asks for something other
// than what the card stands for. Then:
//
//  1. The Coordinator retires the card.
//  2. It turns each mark that Retire returns into the Request that the mark stood for.
//  3. A member whose mark was refused, or came back as stale, posts a Request in full.
//
// All these Requests belong to one round of the name. The sender announces a round only after it has read the record
// of the previous one, so the previous round was complete, and none of its marks is left. The present round cannot
// complete without the sender. So the Coordinator may retire a card at any time, and Retire has no reason to fail.
//
// When the first member joins, the Coordinator retires all cards. No name gets a card before all members have joined.
// So every name passes the Coordinator, which knows the ranks that will not ask.
//
// A Coordinator is not safe for concurrent use.
type Coordinator struct {
	members []int // world ranks, for messages
	cards   Cards
	options Options

	open   map[string]*tally
	opened uint64   // how many tallies have been opened ever
	spare  []*tally // empty, for reuse

	joined   []bool // by member
	joins    int    // how many are true
	joinName string // the name of the Requests by which they joined
	groups   groups

	recent *recent
	byName map[string]*Response // names that have a card
	byCard map[uint32]*Response // the same Responses

	ids processSetIDs

	last     int32       // the member whose Request Step takes; -1 for a Join
	out      []*Response // what Step returns
	distinct []*Request  // the different Requests of the tally that is being validated
}

// NewCoordinator makes the Coordinator of a lane whose members have the given
// world ranks, in ascending order.
func NewCoordinator(members []int, cards Cards, o Options) *Coordinator {
	return &Coordinator{
		members: slices.Clone(members),
		cards:   cards,
		options: o,
		open:    make(map[string]*tally),
		joined:  make([]bool, len(members)),
		groups:  newGroups(),
		recent:  newRecent(4*o.Capacity + 64),
		byName:  make(map[string]*Response),
		byCard:  make(map[uint32]*Response),
	}
}

// Step takes one Request, which the lane members from (ascending) have sent alike. It returns the Responses to publish,
// in order, before those of later calls. Do not change them; the slice is valid until the next call. Step keeps nothing
// of r. An error is a violation of the protocol: abort the lane.
func (c *Coordinator) Step(from []int, r *Request) ([]*Response, error) {
	for _, m := range from {
		if m < 0 || m >= len(c.members) {
			return nil, fmt.Errorf("request %q: from member %d of %d", r.Name, m, len(c.members))
		}
		if c.joined[m] && !r.Type.ChangesSets() {
			return nil, fmt.Errorf("request %q: rank %d sent it although it has joined", r.Name, c.members[m])
		}
	}
	clear(c.out)
	c.out = c.out[:0]
	c.last = int32(from[len(from)-1])
	if r.Type == operation.Join {
		c.last = -1
	}
	var err error
	switch r.Type {
	case operation.Tune:
		err = fmt.Errorf("request %q: rank %d asks to tune", r.Name, c.members[from[0]])
	case operation.Join:
		err = c.each(from, r.Name, c.join)
	case operation.Settle:
		err = c.each(from, r.Name, c.settle)
	default:
		err = c.count(from, r)
	}
	if err != nil {
		return nil, err
	}
	return c.out, nil
}

func (c *Coordinator) each(from []int, name string, f func(from int, name string) error) error {
	for _, m := range from {
		if err := f(m, name); err != nil {
			return err
		}
	}
	return nil
}

// count enters a Request into the tally of its name.
func (c *Coordinator) count(from []int, r *Request) error {
	t, err := c.tallyFor(r.Name)
	if err != nil {
		return err
	}
	if again := t.add(from, r, false); again >= 0 {
		return fmt.Errorf("request %q: rank %d sent it again before its end", r.Name, c.members[again])
	}
	c.advance(t)
	return nil
}

// advance answers t if it is complete and its group, if it has one, is complete, too.
func (c *Coordinator) advance(t *tally) {
	if t.held || !c.complete(t) {
		return
	}
	for _, ready := range c.groups.add(t) {
		c.answer(ready)
	}
}

// complete reports whether all members that may still ask are in t. A joined member still asks to add and remove
// process sets.
func (c *Coordinator) complete(t *tally) bool {
	if t.n == len(c.members) {
		return true
	}
	if t.n+c.joins < len(c.members) || t.one.Type.ChangesSets() {
		return false
	}
	for m, r := range t.reqs {
		if r == nil && !c.joined[m] {
			return false
		}
	}
	return true
}

// answer ends a complete tally.
func (c *Coordinator) answer(t *tally) {
	resp := c.conclude(t)
	resp.Last = c.last
	c.out = append(c.out, resp)
	c.drop(t)
}

// tallyFor returns the open tally of a name, opening one if there is none.
func (c *Coordinator) tallyFor(name string) (*tally, error) {
	if t := c.open[name]; t != nil {
		return t, nil
	}
	if resp := c.byName[name]; resp != nil {
		return c.retire(resp)
	}
	return c.openTally(name), nil
}

func (c *Coordinator) openTally(name string) *tally {
	var t *tally
	if n := len(c.spare); n > 0 {
		t, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		t = &tally{reqs: make([]*Request, len(c.members))}
	}
	c.opened++
	t.name, t.seq = name, c.opened
	c.open[name] = t
	return t
}

// retire takes resp's card away, and opens a tally with the marks that it had.
func (c *Coordinator) retire(resp *Response) (*tally, error) {
	marked, ok := c.cards.Retire(resp.Card)
	if !ok {
		return nil, fmt.Errorf("request %q: its card %d cannot be retired", resp.Name, resp.Card)
	}
	c.forget(resp)
	t := c.openTally(resp.Name)
	for _, m := range marked {
		if m < 0 || m >= len(c.members) || t.add([]int{m}, resp.request(m), true) >= 0 {
			return nil, fmt.Errorf("request %q: its card %d has a false mark of member %d", resp.Name, resp.Card, m)
		}
	}
	return t, nil
}

// retireAll retires every card. Names that nobody had marked get no tally.
func (c *Coordinator) retireAll() error {
	cards := slices.Sorted(maps.Keys(c.byCard)) // an order that tests can rely on
	for _, card := range cards {
		t, err := c.retire(c.byCard[card])
		if err != nil {
			return err
		}
		if t.n == 0 {
			c.drop(t)
		}
	}
	return nil
}

// drop closes a tally.
func (c *Coordinator) drop(t *tally) {
	delete(c.open, t.name)
	t.reset()
	c.spare = append(c.spare, t)
}

// conclude answers a complete tally.
func (c *Coordinator) conclude(t *tally) *Response {
	if text := c.validate(t.reqs); text != "" {
		first := t.first()
		return &Response{Type: first.Type, Err: text, DType: first.DType, Name: t.name, Device: first.Device,
			Group: first.Group, GroupSize: first.GroupSize, Joined: t.absent(), Card: NoCard}
	}
	resp := merge(t.reqs)
	switch {
	case resp.Type == operation.AddProcessSet:
		resp.Root = c.ids.take()
	case resp.Type == operation.RemoveProcessSet:
		c.ids.free(resp.Root)
	case c.joins == 0 && int(max(1, resp.GroupSize)) <= c.options.Capacity:
		c.cache(resp)
	}
	return resp
}

// cache gives resp a card if its name is seen for the second time.
func (c *Coordinator) cache(resp *Response) {
	if !c.recent.has(resp) {
		c.recent.put(resp)
		return
	}
	card, gen, ok := c.cards.Acquire()
	if !ok {
		return
	}
	if evicted := c.byCard[card]; evicted != nil {
		c.forget(evicted)
	}
	resp.Card, resp.Gen = card, gen
	c.byName[resp.Name] = resp
	c.byCard[card] = resp
}

// forget notes that resp has lost its card. If the name comes back with the same parameters, it gets a card at once.
func (c *Coordinator) forget(resp *Response) {
	delete(c.byName, resp.Name)
	delete(c.byCard, resp.Card)
	c.recent.put(resp)
}

// Pending calls f for each name that some but not all members have asked for in full, in the order of their first
// Requests. present and missing are lane members, ascending, valid during the call only. A joined member is missing
// only if it may still ask. Pending leaves out names that members announce by marks: the board knows those. It also
// leaves out names that wait only for others of their group: Pending lists the others.
func (c *Coordinator) Pending(f func(name string, t operation.Kind, present, missing []int)) {
	present := make([]int, 0, len(c.members))
	missing := make([]int, 0, len(c.members))
	for _, t := range c.tallies() {
		present, missing = present[:0], missing[:0]
		for m, r := range t.reqs {
			switch {
			case r != nil:
				present = append(present, m)
			case !c.joined[m] || t.one.Type.ChangesSets():
				missing = append(missing, m)
			}
		}
		if len(missing) == 0 {
			continue
		}
		f(t.name, t.one.Type, present, missing)
	}
}

// tallies lists the open tallies in the order of their first Requests.
func (c *Coordinator) tallies() []*tally {
	return slices.SortedFunc(maps.Values(c.open), bySeq)
}

func bySeq(a, b *tally) int { return cmp.Compare(a.seq, b.seq) }

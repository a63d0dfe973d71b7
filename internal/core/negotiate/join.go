package negotiate

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/operation"
)

// join notes that a member asks for nothing more until all have joined. The tallies that waited only for this member
// become complete, in the order of their first Requests.
func (c *Coordinator) join(from int, name string) error {
	switch {
	case c.joins == 0:
		if err := c.retireAll(); err != nil {
			return err
		}
		c.joinName = name
	case name != c.joinName:
		return fmt.Errorf("request %q: rank %d joins under another name than %q", name, c.members[from], c.joinName)
	}
	c.joined[from] = true
	c.joins++
	for _, t := range c.tallies() {
		if c.open[t.name] == t { // not answered meanwhile, with its group
			c.advance(t)
		}
	}
	if c.joins < len(c.members) {
		return nil
	}
	// All have joined, so no group can become complete any more.
	for _, t := range c.groups.releaseAll() {
		c.answer(t)
	}
	c.joins = 0
	clear(c.joined)
	c.out = append(c.out, &Response{Type: operation.Join, Name: name, Root: int32(c.members[from]), Device: CPUDevice,
		Prescale: 1, Postscale: 1, Card: NoCard, Last: c.last})
	return nil
}

// settle retires all cards, and turns their marks into Requests. The Response means that the sender has no mark under
// way, because the transport keeps this order: it delivers a Request after the sender's earlier marks, and a Response
// after the marks that were refused before the Response was published.
func (c *Coordinator) settle(from int, name string) error {
	if err := c.retireAll(); err != nil {
		return err
	}
	c.out = append(c.out, &Response{Type: operation.Settle, Name: name, Root: int32(c.members[from]), Device: CPUDevice,
		Prescale: 1, Postscale: 1, Card: NoCard})
	return nil
}

// Joined lists the lane members that have joined and wait for the others, ascending.
func (c *Coordinator) Joined() []int {
	var joined []int
	for m, is := range c.joined {
		if is {
			joined = append(joined, m)
		}
	}
	return joined
}

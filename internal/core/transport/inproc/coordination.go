package inproc

import "github.com/gorovod/gorovod/internal/core/transport"

// coordination is the lane's board as its coordinator sees it.
type coordination struct{ *boardMember }

var _ transport.Coordination = (*coordination)(nil)

func (c *coordination) TakeRequests(f func(from []int, p []byte)) {
	c.ok(c.lane.board.TakeRequests(f))
}

func (c *coordination) Publish(responses ...[]byte) int {
	published, err := c.lane.board.Publish(responses...)
	if !c.ok(err) {
		return 0
	}
	if published > 0 {
		c.ringAll()
	}
	return published
}

func (c *coordination) Acquire() (card, gen uint32, ok bool) {
	card, gen, ok, err := c.lane.board.Acquire()
	return card, gen, c.ok(err) && ok
}

func (c *coordination) Retire(card uint32) (marked []int, ok bool) {
	marked, ok, err := c.lane.board.Retire(card)
	return marked, c.ok(err) && ok
}

func (c *coordination) Marked(card uint32) []int {
	marked, err := c.lane.board.Marked(card)
	if !c.ok(err) {
		return nil
	}
	return marked
}

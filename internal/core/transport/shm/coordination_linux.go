package shm

import "github.com/gorovod/gorovod/internal/core/transport"

// coordination is the lane's board as its coordinator sees it.
type coordination struct{ *laneBoard }

var _ transport.Coordination = (*coordination)(nil)

func (c *coordination) TakeRequests(f func(from []int, p []byte)) {
	c.ok(c.b.TakeRequests(f))
}

func (c *coordination) Publish(responses ...[]byte) int {
	published, err := c.b.Publish(responses...)
	c.ok(err)
	if published > 0 {
		c.ringForRecord()
	}
	return published
}

func (c *coordination) Acquire() (card, gen uint32, ok bool) {
	card, gen, ok, err := c.b.Acquire()
	c.ok(err)
	return card, gen, ok
}

func (c *coordination) Retire(card uint32) (marked []int, ok bool) {
	marked, ok, err := c.b.Retire(card)
	c.ok(err)
	return marked, ok
}

func (c *coordination) Marked(card uint32) []int {
	marked, err := c.b.Marked(card)
	c.ok(err)
	return marked
}

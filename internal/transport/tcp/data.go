package tcp

import (
	"errors"

	"github.com/gorovod/gorovod/internal/transport"
)

// comm is a lane as its collectives see it.
//
// A message of some size is cut into as many parts as there are streams to the
// peer, one each; a small one goes over the first stream alone. The parts follow
// from the length and from Config.Streams, so nothing is said about them.
//
// The driver moves the data itself, by system calls that do not block, when it
// posts and when it asks. Whoever asks after one operation in vain moves
// all others that are outstanding in the lane, so that no two members can wait for
// each other while each could go on with something else. What is posted but not
// asked after yet keeps the driver from sleeping.
type comm lane

var _ transport.Comm = (*comm)(nil)

func (c *comm) Rank() int { return c.me }
func (c *comm) Size() int { return len(c.members) }

// Send implements transport.Comm. It panics when the message before is
// outstanding.
func (c *comm) Send(to int, p []byte) {
	o := &c.dataOut[to]
	o.post(p)
	c.net.goOn()
	if !o.listed && !o.done() {
		o.listed = true
		c.sending = append(c.sending, o)
	}
}

// Recv implements transport.Comm. It panics when the message before is
// outstanding.
func (c *comm) Recv(from int, p []byte) {
	i := &c.dataIn[from]
	i.post(p)
	c.net.goOn()
	if !i.listed {
		i.listed = true
		c.receiving = append(c.receiving, i)
	}
}

// Sent implements transport.Comm.
func (c *comm) Sent(to int) bool {
	if o := &c.dataOut[to]; !o.done() {
		c.move()
		return o.done()
	}
	return true
}

// Received implements transport.Comm.
func (c *comm) Received(from int) bool {
	if i := &c.dataIn[from]; !i.done() {
		c.move()
		return i.done()
	}
	return true
}

// move does what can be done now for all that is outstanding. What came is taken
// first: that lets others go on.
func (c *comm) move() {
	kept := c.receiving[:0]
	for _, i := range c.receiving {
		if i.move(); i.done() {
			i.listed = false
		} else {
			kept = append(kept, i)
		}
	}
	c.receiving = kept
	left := c.sending[:0]
	for _, o := range c.sending {
		if o.move(); o.done() {
			o.listed = false
		} else {
			left = append(left, o)
		}
	}
	c.sending = left
}

// goOn says that a poll has not come to its end, so that the driver's next sleep
// is none.
func (n *Network) goOn() {
	if n.edges != nil {
		n.edges.goOn()
	}
}

// quantum is how much a stream may move at a time, so that a direction in which
// all is ready does not keep the other one waiting.
const quantum = 512 << 10

// minPart is the least that is worth a stream of its own.
const minPart = 64 << 10

// parts is the number of streams over which a message of n bytes goes.
func parts(n, streams int) int { return max(1, min(streams, n/minPart)) }

// part is the i-th of k parts of p.
func part(p []byte, i, k int) []byte {
	const line = 64
	at := func(i int) int {
		if i == k {
			return len(p)
		}
		return len(p) / k * i &^ (line - 1)
	}
	lo, hi := at(i), at(i+1)
	return p[lo:hi:hi]
}

// errEnding ends a reader's work because the network has been aborted or closed,
// or the lane closed.
var errEnding = errors.New("the network or the lane has come to its end")

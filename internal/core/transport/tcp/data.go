package tcp

import "github.com/gorovod/gorovod/internal/core/transport"

// comm is a lane's Comm for its collectives.
//
// A large message is cut into parts, one for each stream to the peer. A small one goes over the first stream alone. The
// length and Config.Streams determine the parts, so both ends know them.
//
// The driver moves the data itself, by system calls that do not block, when it posts an operation and when it asks for
// one. If the operation has not ended, the driver moves all others of the lane, too: otherwise two members could wait
// for each other while each could go on with another operation. An operation that has been posted, but not asked for
// yet, keeps the driver from sleeping.
type comm lane

var _ transport.Comm = (*comm)(nil)

func (c *comm) Rank() int { return c.me }
func (c *comm) Size() int { return len(c.members) }

// Send implements transport.Comm. It panics if the previous message is outstanding.
func (c *comm) Send(to int, p []byte) {
	o := &c.dataOut[to]
	o.post(p)
	c.net.goOn()
	if !o.listed && !o.done() {
		o.listed = true
		c.sending = append(c.sending, o)
	}
}

// Recv implements transport.Comm. It panics if the previous message is outstanding.
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

// move makes all possible progress with the outstanding operations. It reads first, because that lets the senders
// continue.
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
	if e := c.net.edges; e != nil {
		e.note(c.receiving, c.sending)
	}
}

// goOn notes that a poll has stopped while there was more to do. The driver's next Sleep returns at once.
func (n *Network) goOn() {
	if n.edges != nil {
		n.edges.goOn()
	}
}

// quantum is the most bytes that a stream moves at a time, so that one busy direction does not hold up the other.
const quantum = 512 << 10

// minPart is the smallest part, in bytes, that is worth a stream of its own.
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

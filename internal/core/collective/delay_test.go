package collective

import (
	"math/rand/v2"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// delayedComm is a Comm that reads a posted message only some polls later, like a socket with a full buffer, and
// reports received messages late. It shows an operation that touches a posted buffer too early. With inproc alone a
// message is often delivered when Send returns.
type delayedComm struct {
	transport.Comm
	rng  *rand.Rand
	held []message // by receiver
}

// message has been posted by the operation, but not yet to the transport.
type message struct {
	posted bool
	p      []byte
}

func delay(g *group, rng *rand.Rand) {
	for _, l := range g.lanes {
		if l.comm != nil {
			l.wrap(&delayedComm{l.comm, rng, make([]message, l.size)})
		}
	}
}

// wrap makes c take the place of the lane's Comm.
func (l *Lane) wrap(c transport.Comm) {
	l.comm = c
	if l.hier != nil && l.hier.cross != nil {
		l.hier.cross.comm.(*crossComm).Comm = c
	}
}

func (d *delayedComm) Send(to int, p []byte) {
	if d.held[to].posted {
		panic("a second send is posted")
	}
	d.held[to] = message{true, p}
}

func (d *delayedComm) Sent(to int) bool {
	d.release()
	return !d.held[to].posted && d.Comm.Sent(to)
}

func (d *delayedComm) Received(from int) bool {
	d.release()
	return d.rng.IntN(3) > 0 && d.Comm.Received(from)
}

// release posts some of the held messages.
func (d *delayedComm) release() {
	for to, m := range d.held {
		if m.posted && d.rng.IntN(3) == 0 {
			d.held[to] = message{}
			d.Comm.Send(to, m.p)
		}
	}
}

package collective

import "github.com/gorovod/gorovod/internal/core/reduce"

// pieceBytes is the number of bytes that a ring or tree sends at a time. It is large enough that a message costs
// little, and small enough that a received piece is still in the cache when it is reduced.
const pieceBytes = 256 << 10

// ring passes shares around the ring of members: each receives from its predecessor and sends to its successor only. At
// step t member r sends share (r-t) mod size and receives share (r-t-1) mod size, which it sends at step t+1. In the
// first `reducing` steps an arriving share is combined with this member's own. After that it is final, and goes to its
// place in the output.
//
// Shares travel in pieces of at most pieceBytes. A member passes a piece on as soon as it has combined or copied it.
// Meanwhile the next piece arrives.
type ring struct {
	lane       *Lane
	todo       reduction // op and scale matter only while reducing
	steps      int
	reducing   int
	prev, next int

	sending   cursor // the piece to send next
	receiving cursor // the piece whose receive is to be posted next
	arrived   cursor // the piece to be received and dealt with next
	landing   []byte // the memory for that piece; nil if no receive is posted
	spare     int    // which of its two pieces of scratch memory the next receive may use
}

// cursor is a place in the stream of pieces that one member sends or receives.
type cursor struct {
	step int
	off  int // in the step's share
}

// start reads the shares from l.offsets.
func (r *ring) start(l *Lane, todo reduction, steps, reducing int) Op {
	*r = ring{
		lane: l, todo: todo, steps: steps, reducing: reducing,
		prev: (l.rank + l.size - 1) % l.size, next: (l.rank + 1) % l.size,
	}
	r.sending = r.normal(r.sending, 0)
	r.receiving = r.normal(r.receiving, 1)
	r.arrived = r.receiving
	return r
}

// share is the range of bytes that this member sends at a step, or, if late is 1, the range that it receives.
func (r *ring) share(step, late int) (lo, hi int) {
	i := (r.lane.rank - step - late) % r.lane.size
	if i < 0 {
		i += r.lane.size
	}
	return r.lane.offsets[i], r.lane.offsets[i+1]
}

// piece is the range of the next piece at a cursor, in bytes.
func (r *ring) piece(c cursor, late int) (lo, hi int) {
	lo, hi = r.share(c.step, late)
	lo += c.off
	return lo, min(lo+r.lane.piece, hi)
}

// after is the cursor behind the piece at c.
func (r *ring) after(c cursor, late int) cursor {
	lo, hi := r.piece(c, late)
	c.off += hi - lo
	return r.normal(c, late)
}

// normal moves a cursor over the end of a share, and over empty shares.
func (r *ring) normal(c cursor, late int) cursor {
	for c.step < r.steps {
		if lo, hi := r.share(c.step, late); c.off < hi-lo {
			break
		}
		c = cursor{step: c.step + 1}
	}
	return c
}

func (r *ring) Advance() (bool, error) {
	comm := r.lane.comm
	for {
		r.post()
		switch {
		case r.landing != nil && comm.Received(r.prev):
			r.take()
		case r.sending.step < r.steps && r.mayPass() && comm.Sent(r.next):
			r.send()
		case r.sending.step == r.steps && r.arrived.step == r.steps && comm.Sent(r.next):
			r.lane.end()
			return true, nil
		default:
			return false, nil
		}
	}
}

// post posts the next receive if none is posted.
func (r *ring) post() {
	if r.landing != nil || r.receiving.step == r.steps {
		return
	}
	lo, hi := r.piece(r.receiving, 1)
	if r.receiving.step < r.reducing || r.todo.compressed() {
		n := r.todo.sent(hi - lo)
		r.landing = r.scratch(r.spare)[:n:n]
		r.spare = 1 - r.spare
	} else {
		r.landing = r.todo.out[lo:hi:hi]
	}
	r.lane.recv(r.prev, r.landing)
	r.receiving = r.after(r.receiving, 1)
}

// The scratch memory for pieces: two to receive into, and, with compression, one to send from and one to round in.
const (
	sendingScratch  = 2
	roundingScratch = 3
)

// scratch is the scratch memory with number i, for one piece as it is on the wire.
func (r *ring) scratch(i int) []byte {
	n := r.todo.sent(r.lane.piece)
	count := 2
	if r.todo.compressed() {
		count = 4
	}
	return r.lane.temporary(count * n)[i*n:][:n]
}

// take combines or copies the piece that has landed, while the next one is arriving.
func (r *ring) take() {
	landed, at := r.landing, r.arrived
	r.landing = nil
	r.lane.moved++
	r.post()
	lo, hi := r.piece(at, 1)
	scale := 1.0
	if at.step == r.reducing-1 {
		scale = r.todo.scale
	}
	switch out := r.todo.out[lo:hi]; {
	case at.step < r.reducing && r.todo.compressed():
		r.todo.add(out, r.todo.in[lo:hi], landed, scale)
		if at.step == r.reducing-1 {
			r.todo.round(out, r.scratch(roundingScratch))
		}
	case r.todo.compressed():
		r.todo.widen(out, landed)
	case at.step < r.reducing:
		srcs := r.lane.srcs[:2]
		srcs[0], srcs[1] = landed, r.todo.in[lo:hi]
		reduce.Reduce(r.todo.dt, r.todo.op, out, srcs, scale)
	}
	r.arrived = r.after(at, 1)
}

// mayPass reports that the piece to send next is this member's own, or has arrived and has been combined or copied.
func (r *ring) mayPass() bool {
	from := cursor{r.sending.step - 1, r.sending.off}
	return from.step < r.arrived.step || from.step == r.arrived.step && from.off < r.arrived.off
}

func (r *ring) send() {
	lo, hi := r.piece(r.sending, 0)
	src := r.todo.out
	if r.sending.step == 0 && r.reducing > 0 {
		src = r.todo.in
	}
	p := src[lo:hi]
	if r.todo.compressed() {
		p = r.scratch(sendingScratch)[:r.todo.sent(hi-lo)]
		r.todo.narrow(p, src[lo:hi])
	}
	r.lane.send(r.next, p)
	r.sending = r.after(r.sending, 0)
}

package collective

import "github.com/gorovod/gorovod/internal/core/reduce"

// allreduceDirect is the allreduce and the reducescatter of deterministic lanes over Comm: each element is combined in
// one place, from all members' operands, in the order of the members. Each member sends every other one the part that
// the other combines, slice by slice. It combines a slice of its own part when the slice has come from all members,
// while the next slice arrives. An allreduce then passes the parts around as ring's allgather does. 16-bit floats are
// scaled, and then rounded once. With compression all operands are rounded, this member's own included, and the result,
// too: see wire.go.
//
// If there is little data, every member combines all of it, and there is nothing to gather.
//
// Steps: 1 for little data; else 1 with size-1 messages a slice, and for an allreduce size-1 more. Bytes: each member
// sends and receives n(size-1)/size for a reducescatter and twice that for an allreduce, the least possible; n(size-1)
// of little data. Memory: two slices for each member, three with compression. Always chosen on a deterministic lane.
type allreduceDirect struct {
	lane   *Lane
	todo   reduction // out is only this member's part, unless whole is set
	whole  bool      // all members combine everything
	then   Op        // the allgather of an allreduce, when the reduction has ended
	gather []byte    // its output; nil for none

	width   int // of all slices but the last
	slices  int // of this member's part
	reduced int // slices combined

	// Slices by member; kept.
	sent    []int // posted to it
	posted  []int // of this member's part, receives posted
	arrived []int // and filled
}

// scratchOfDirect bounds the memory for slices if there are few members.
const scratchOfDirect = 8 << 20

// startAllreduce chooses between the two forms. Every member combines everything if that costs no more than the
// messages of an allgather.
func (a *allreduceDirect) startAllreduce(l *Lane, todo reduction) Op {
	n := len(todo.in)
	if n <= messageBytes {
		return a.start(l, todo, nil, true)
	}
	for m := range l.size {
		l.offsets[m], l.offsets[m+1] = share(n, l.size, m)
	}
	out := todo.out
	todo.out = out[l.offsets[l.rank]:l.offsets[l.rank+1]]
	return a.start(l, todo, out, false)
}

// start reads the parts from l.offsets, unless whole is set.
func (a *allreduceDirect) start(l *Lane, todo reduction, gather []byte, whole bool) Op {
	if a.sent == nil {
		a.sent, a.posted, a.arrived = make([]int, l.size), make([]int, l.size), make([]int, l.size)
	}
	clear(a.sent)
	clear(a.posted)
	clear(a.arrived)
	*a = allreduceDirect{lane: l, todo: todo, whole: whole, gather: gather, sent: a.sent, posted: a.posted,
		arrived: a.arrived}
	a.width = max(lineBytes, min(l.piece, scratchOfDirect/(3*l.size)/lineBytes*lineBytes))
	if whole {
		a.width = alignUp(len(todo.in), lineBytes)
	}
	a.slices = ceilDiv(len(todo.out), a.width)
	l.temporary(3 * l.size * todo.sent(a.width))
	return a
}

func (a *allreduceDirect) Advance() (bool, error) {
	if a.then != nil {
		return a.then.Advance()
	}
	l := a.lane
	for {
		before := l.moved
		sent, complete := a.exchange()
		// If every member combines everything, the output may overwrite data that is being sent.
		if complete && a.reduced < a.slices && (sent || !a.whole) {
			a.reduce()
		}
		switch {
		case a.reduced == a.slices && sent && a.gather != nil:
			r := a.todo
			r.in, r.out = a.gather, a.gather // its own part is already there
			a.then = l.ring.start(l, r, l.size-1, 0)
			return a.then.Advance()
		case a.reduced == a.slices && sent:
			l.end()
			return true, nil
		case l.moved == before:
			return false, nil
		}
	}
}

// slice is the range of slice k of member m's part, in bytes of the input.
func (a *allreduceDirect) slice(m, k int) (lo, hi int) {
	end := len(a.todo.in)
	if !a.whole {
		lo, end = a.lane.offsets[m], a.lane.offsets[m+1]
	}
	lo = min(lo+k*a.width, end)
	return lo, min(lo+a.width, end)
}

// outgoing is the number of the memory from which slices are sent, unless they are sent from the input.
const outgoing = 2

// memory returns the memory of member m for a slice of n bytes. Its number k is slice%2, or outgoing.
func (a *allreduceDirect) memory(m, k, n int) []byte {
	n = a.todo.sent(n)
	at := (k*a.lane.size + m) * a.todo.sent(a.width)
	return a.lane.scratch[at : at+n : at+n]
}

// exchange completes delivered messages, and posts further ones, the next members first. It reports whether all has
// been sent, and whether the next slice to combine has come from all members.
func (a *allreduceDirect) exchange() (sent, complete bool) {
	l := a.lane
	sent, complete = true, true
	for distance := 1; distance < l.size; distance++ {
		from, to := (l.rank-distance+l.size)%l.size, (l.rank+distance)%l.size
		if a.arrived[from] < a.posted[from] && l.comm.Received(from) {
			a.arrived[from]++
			l.moved++
		}
		if k := a.posted[from]; k == a.arrived[from] && k < min(a.slices, a.reduced+2) {
			a.posted[from]++
			lo, hi := a.slice(l.rank, k)
			l.recv(from, a.memory(from, k%2, hi-lo))
		}
		complete = complete && a.arrived[from] > a.reduced
		free := l.comm.Sent(to)
		if lo, hi := a.slice(to, a.sent[to]); lo < hi {
			if free {
				a.sent[to]++
				a.send(to, a.todo.in[lo:hi])
			}
			free = false
		}
		sent = sent && free
	}
	return sent, complete
}

func (a *allreduceDirect) send(to int, p []byte) {
	if a.todo.compressed() {
		wire := a.memory(to, outgoing, len(p))
		a.todo.narrow(wire, p)
		p = wire
	}
	a.lane.send(to, p)
}

// reduce combines the next slice of this member's part.
func (a *allreduceDirect) reduce() {
	l, k := a.lane, a.reduced
	lo, hi := a.slice(l.rank, k)
	own, out := a.todo.in[lo:hi], a.todo.out[k*a.width:][:hi-lo]
	for m := range l.srcs {
		l.srcs[m] = a.memory(m, k%2, hi-lo)
	}
	if a.todo.compressed() {
		a.todo.narrow(l.srcs[l.rank], own)
		a.addCompressed(out)
	} else {
		l.srcs[l.rank] = own
		reduce.Reduce(a.todo.dt, a.todo.op, out, l.srcs, a.todo.scale)
	}
	a.reduced++
	l.moved++
}

// addCompressed makes out the sum of l.srcs, which are compressed.
func (a *allreduceDirect) addCompressed(out []byte) {
	srcs := a.lane.srcs
	a.todo.widen(out, srcs[0])
	scale := 1.0
	for m := 1; m < len(srcs); m++ {
		if m == len(srcs)-1 {
			scale = a.todo.scale
		}
		a.todo.add(out, out, srcs[m], scale)
	}
	a.todo.round(out, srcs[0])
}

package collective

import (
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// allreduceQuantised is the allreduce by a codec that keeps errors (tensor.Wire.Keeps), with error feedback. The tensor
// is cut into slices, and each member owns a part of each slice. Every two members exchange two messages for each
// slice:
//
//	operand  what a member contributes to the other one's part: its input and what reduction.kept has for it
//	sum      the part that a member owns, when it has added all operands
//
// The owner adds in the tensor's type: its own operand as it is, then the others' in the order of the members. All
// members get the same bits, because the owner, too, uses the values of the encoded sum.
//
// Nothing is lost: reduction.kept holds the error of each operand on its sender, and the error of each sum on its
// owner. The next allreduce of the tensor adds them. So over any number of allreduces, each of which may have other
// owners,
//
//	the results / scale + what the members keep = what they have contributed
//
// apart from the rounding of sums in the tensor's type. Rounding errors do not pile up from hop to hop, as they would
// in a ring.
//
// Steps: 2 a slice, overlapped between two slices. Bytes: each member sends and receives 2n(size-1)/size, n being the
// encoded bytes, the least possible. Memory: four encoded slices. Chosen if the tensor has leastQuantised bytes.
type allreduceQuantised struct {
	lane   *Lane
	todo   reduction
	size   int             // of an element
	block  int             // elements that are encoded together
	width  int             // elements of all slices but the last; whole blocks
	slices int             // at least one
	added  int             // the number of slices of which this member has summed its part
	peers  []quantisedPeer // by member; kept
	most   int             // the longest message
	wires  [2][]byte       // of two slices: operands for the others, and this member's sum, by member
	landed [2][]byte       // of two slices: the message from each member
}

// quantisedPeer counts messages that go to a member, or come from it, in the order of allreduceQuantised.message.
type quantisedPeer struct {
	sent    int // posted
	asked   int // receives posted
	arrived int
}

const (
	// leastQuantised is the least number of bytes that a tensor must have to be quantised. A shorter one costs more for
	// its messages than for its bytes.
	leastQuantised = 16 << 10
	// quantisedPart is the size of a member's part of a slice, in bytes of elements; less if there are many members.
	quantisedPart      = 512 << 10
	scratchOfQuantised = 16 << 20
)

func (a *allreduceQuantised) start(l *Lane, todo reduction) Op {
	if a.peers == nil {
		a.peers = make([]quantisedPeer, l.size)
	}
	clear(a.peers)
	size, block := todo.dt.Size(), todo.codec().Block()
	n := len(todo.in) / size
	part := ceilDiv(min(l.piece*(quantisedPart/pieceBytes), scratchOfQuantised/l.size)/size, block)
	*a = allreduceQuantised{lane: l, todo: todo, size: size, block: block, width: max(1, part) * l.size * block,
		peers: a.peers}
	a.slices = ceilDiv(n, a.width)
	a.width = min(a.width, n) // of the only slice
	a.most = a.encoded(ceilDiv(ceilDiv(a.width, block), l.size) * block)
	each := l.size * a.most
	memory := l.temporary(4 * each)
	for i := range a.wires {
		a.wires[i], a.landed[i] = memory[2*i*each:][:each], memory[(2*i+1)*each:][:each]
	}
	return a
}

func (a *allreduceQuantised) Advance() (bool, error) {
	l := a.lane
	for {
		before := l.moved
		if done := a.exchange(); done {
			l.end()
			return true, nil
		}
		if a.complete() {
			a.add()
		}
		if l.moved == before {
			return false, nil
		}
	}
}

// message says what the message with a given number, between two members, carries. The numbers are the same in both
// directions. The operand of the next slice goes before the sum of this one, so that a member has something to send
// while others add.
//
//	operand 0, operand 1, sum 0, operand 2, sum 1, … operand k, sum k-1, sum k
func (a *allreduceQuantised) message(number int) (slice int, sum bool) {
	switch {
	case number == 0:
		return 0, false
	case number == 2*a.slices-1:
		return a.slices - 1, true
	case number%2 == 1:
		return (number + 1) / 2, false
	}
	return number/2 - 1, true
}

// operand is the number of the message that has the operand of a slice.
func (a *allreduceQuantised) operand(slice int) int { return max(0, 2*slice-1) }

// part is the range of elements of slice k that member m owns: whole blocks.
func (a *allreduceQuantised) part(k, m int) (lo, hi int) {
	first := k * a.width
	end := min(first+a.width, len(a.todo.in)/a.size)
	blocks := ceilDiv(end-first, a.block)
	at := func(m int) int { return min(first+blocks*m/a.lane.size*a.block, end) }
	return at(m), at(m + 1)
}

// wire is the memory from which member m's part of slice k is sent: an operand, or this member's own sum.
func (a *allreduceQuantised) wire(k, m int) []byte {
	lo, hi := a.part(k, m)
	return a.wires[k%2][m*a.most:][:a.encoded(hi-lo)]
}

// landing is the memory for message number s from member m.
func (a *allreduceQuantised) landing(m, s int) []byte {
	k, sum := a.message(s)
	owner := a.lane.rank
	if sum {
		owner = m
	}
	lo, hi := a.part(k, owner)
	return a.landed[k%2][m*a.most:][:a.encoded(hi-lo)]
}

// exchange completes delivered messages, and posts further ones, the next members first. It reports whether all
// messages have been sent and have come.
func (a *allreduceQuantised) exchange() (done bool) {
	l, all := a.lane, 2*a.slices
	done = true
	for distance := 1; distance < l.size; distance++ {
		m := (l.rank + distance) % l.size
		p := &a.peers[m]
		if p.arrived < p.asked && l.comm.Received(m) {
			a.take(m, p.arrived)
			p.arrived++
			l.moved++
		}
		if p.asked == p.arrived && p.asked < all && a.ready(p.asked) {
			p.asked++
			l.recv(m, a.landing(m, p.asked-1))
		}
		free := l.comm.Sent(m)
		if free && p.sent < all && a.ready(p.sent) {
			p.sent++
			a.send(m, p.sent-1)
			free = false
		}
		done = done && free && p.sent == all && p.arrived == all
	}
	return done
}

// ready reports that this member may send message number s, or receive it: a sum only after it has made its own sum,
// because until then the memory holds operands.
func (a *allreduceQuantised) ready(s int) bool {
	k, sum := a.message(s)
	return !sum || k < a.added
}

// send posts message number s for member m.
func (a *allreduceQuantised) send(m, s int) {
	k, sum := a.message(s)
	if sum {
		a.lane.send(m, a.wire(k, a.lane.rank))
		return
	}
	lo, hi := a.part(k, m)
	wire := a.wire(k, m)
	a.todo.codec().Encode(a.todo.dt, wire, a.of(a.todo.in, lo, hi), a.of(a.todo.kept, lo, hi))
	a.lane.send(m, wire)
}

// take handles message number s from member m: a sum goes to the output, and an operand stays where it is until all
// have come.
func (a *allreduceQuantised) take(m, s int) {
	if k, sum := a.message(s); sum {
		lo, hi := a.part(k, m)
		a.todo.codec().Decode(a.todo.dt, a.of(a.todo.out, lo, hi), a.landing(m, s), a.todo.scale)
	}
}

// encoded is the number of bytes on the wire for n elements.
func (a *allreduceQuantised) encoded(n int) int { return a.todo.codec().Bytes(a.todo.dt, n) }

// of is the elements from lo to hi of one of the reduction's arrays; nil if there is no such array.
func (a *allreduceQuantised) of(array []byte, lo, hi int) []byte {
	if array == nil {
		return nil
	}
	return array[a.size*lo : a.size*hi]
}

// complete reports that all operands of the next slice have come, and that the memory for its sum is free: that memory
// last held the sum of two slices before, which was sent before this slice's operand.
func (a *allreduceQuantised) complete() bool {
	if a.added == a.slices {
		return false
	}
	s := a.operand(a.added)
	for m, p := range a.peers {
		if m != a.lane.rank && (p.arrived <= s || p.sent <= s) {
			return false
		}
	}
	return true
}

// add makes the sum of this member's part of the next slice.
func (a *allreduceQuantised) add() {
	l, k, todo := a.lane, a.added, &a.todo
	lo, hi := a.part(k, l.rank)
	in, out, kept, wire := a.of(todo.in, lo, hi), a.of(todo.out, lo, hi), a.of(todo.kept, lo, hi), a.wire(k, l.rank)
	if kept != nil {
		srcs := append(l.srcs[:0], in, kept)
		reduce.Reduce(todo.dt, tensor.Sum, out, srcs, 1)
		clear(kept)
	} else {
		copyTo(out, in)
	}
	for m := range l.size {
		if m != l.rank {
			todo.codec().Add(todo.dt, out, out, a.landing(m, a.operand(k)), 1)
		}
	}
	todo.codec().Encode(todo.dt, wire, out, kept)
	todo.codec().Decode(todo.dt, out, wire, todo.scale)
	a.added++
	l.moved++
}

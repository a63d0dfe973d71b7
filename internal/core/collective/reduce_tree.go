package collective

import (
	"math/bits"

	"github.com/gorovod/gorovod/internal/core/reduce"
)

// reduceTree is the reduction to one member over Comm, along a tree: a member combines its children's data with its own
// input, and sends the result to its parent. The data travels in pieces, and a piece goes on as soon as it has come
// from all children. For little data the tree is that of broadcastTree. For much data it is a chain that ends at the
// root, in which every member receives n once.
//
// A piece is combined from this member's operand and those of its children, in the order of children; 16-bit floats are
// rounded at each hop. The root applies the scale.
//
// Steps: log2(size) for little data, size-1 for the first piece of a chain; pieces overlap. Bytes: every member but the
// root sends n once; in the chain all but its first receive n, and in the tree the root receives n log2(size). Memory:
// two pieces, and two for each child. Always chosen over Comm, except on deterministic lanes. The chain is chosen if it
// is cheaper by the model in model.go: it costs (s-1)·m + n, and the tree log2(s)·(m + n).
type reduceTree struct {
	lane   *Lane
	todo   reduction
	parent int // -1 on the root
	piece  int // bytes of all pieces but the last
	pieces int

	children int
	child    [bits.UintSize]int
	posted   [bits.UintSize]int // receives posted from each child
	arrived  [bits.UintSize]int // and filled

	combined int // pieces that are ready to go on; on the root, pieces that are done
	passed   int // pieces posted to the parent
	freed    int // pieces that have left
}

func (t *reduceTree) start(l *Lane, todo reduction, root int) Op {
	n := len(todo.in)
	piece := min(l.piece, alignUp(n, lineBytes))
	*t = reduceTree{lane: l, todo: todo, parent: -1, piece: piece, pieces: ceilDiv(n, piece)}
	v := (l.rank - root + l.size) % l.size
	rounds := bits.Len(uint(l.size - 1))
	if n > l.message && (l.size-1)*l.message+n < rounds*(l.message+n) {
		t.join(root, v, v-1, v+1)
	} else {
		t.join(root, v, v&(v-1))
		lowest := v & -v
		if v == 0 {
			lowest = 1 << rounds
		}
		for bit := 1; bit < lowest; bit <<= 1 {
			t.add(root, v+bit)
		}
	}
	l.temporary(2 * (1 + t.children) * piece)
	return t
}

// join sets the parent and children of the member with number v, as numbers from the root.
func (t *reduceTree) join(root, v, parent int, children ...int) {
	if v > 0 {
		t.parent = (parent + root) % t.lane.size
	}
	for _, c := range children {
		t.add(root, c)
	}
}

// add adds a child, if there is a member with this number.
func (t *reduceTree) add(root, v int) {
	if v < t.lane.size {
		t.child[t.children] = (v + root) % t.lane.size
		t.children++
	}
}

func (t *reduceTree) Advance() (bool, error) {
	comm := t.lane.comm
	for {
		before := t.lane.moved
		sent := t.parent < 0 || comm.Sent(t.parent)
		if sent {
			t.freed = t.passed
		}
		if t.receive() && t.combined < t.pieces && (t.parent < 0 || t.combined < t.freed+2) {
			t.combine(t.combined)
			t.combined++
			t.lane.moved++
		}
		if sent && t.parent >= 0 && t.passed < t.combined {
			t.lane.send(t.parent, t.outgoing(t.passed))
			t.passed++
			sent = false
		}
		switch {
		case t.combined == t.pieces && (t.parent < 0 || sent && t.passed == t.pieces):
			t.lane.end()
			return true, nil
		case t.lane.moved == before:
			return false, nil
		}
	}
}

// receive ends finished receives, posts further ones, and reports that the next piece has come from all children.
func (t *reduceTree) receive() (complete bool) {
	comm := t.lane.comm
	complete = true
	for i := range t.children {
		if t.arrived[i] < t.posted[i] && comm.Received(t.child[i]) {
			t.arrived[i]++
			t.lane.moved++
		}
		if k := t.posted[i]; k == t.arrived[i] && k < min(t.pieces, t.combined+2) {
			t.posted[i]++
			t.lane.recv(t.child[i], t.landing(i, k))
		}
		complete = complete && t.arrived[i] > t.combined
	}
	return complete
}

// bounds is the range of bytes of piece k.
func (t *reduceTree) bounds(k int) (lo, hi int) {
	return k * t.piece, min((k+1)*t.piece, len(t.todo.in))
}

// scratch is the memory with number i for a piece of n bytes.
func (t *reduceTree) scratch(i, n int) []byte {
	return t.lane.scratch[i*t.piece:][:n:n]
}

// landing is the memory into which piece k of child i is received.
func (t *reduceTree) landing(i, k int) []byte {
	lo, hi := t.bounds(k)
	return t.scratch(2+2*i+k%2, hi-lo)
}

// outgoing is piece k as it goes on to the parent. A leaf sends its input.
func (t *reduceTree) outgoing(k int) []byte {
	lo, hi := t.bounds(k)
	if t.children == 0 {
		return t.todo.in[lo:hi]
	}
	return t.scratch(k%2, hi-lo)
}

// combine makes piece k of this member's operand and its children's.
func (t *reduceTree) combine(k int) {
	if t.children == 0 {
		return
	}
	lo, hi := t.bounds(k)
	out, scale := t.outgoing(k), 1.0
	if t.parent < 0 {
		out, scale = t.todo.out[lo:hi], t.todo.scale
	}
	srcs := t.lane.srcs[:1+t.children]
	srcs[0] = t.todo.in[lo:hi]
	for i := range t.children {
		srcs[1+i] = t.landing(i, k)
	}
	reduce.Reduce(t.todo.dt, t.todo.op, out, srcs, scale)
}

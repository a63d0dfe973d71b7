package collective

import "math/bits"

// broadcastTree is the broadcast along a binomial tree. With the members
// numbered from the root, the parent of v is v without its lowest set bit. The
// data travels in pieces: a member passes a piece on to each of its children as
// soon as it has it.
//
// Steps: log2(size) for the first piece; pieces overlap. Bytes: every member but
// the root receives n once; the root sends n to each of its log2(size) children.
// Memory: none. Always chosen over Comm.
type broadcastTree struct {
	lane     *Lane
	buf      []byte
	parent   int // -1 on the root
	landing  int // length of the posted receive; 0 when there is none
	have     int // bytes of buf that are there
	children int
	child    [bits.UintSize]int // the child with the largest subtree first
	passed   [bits.UintSize]int // bytes posted to each child
}

func (b *broadcastTree) start(l *Lane, root int, buf []byte) Op {
	b.lane, b.buf = l, buf
	b.parent, b.landing, b.have, b.children = -1, 0, 0, 0
	v := (l.rank - root + l.size) % l.size
	bit := 1 << bits.Len(uint(l.size-1)) // greater than every number
	if v == 0 {
		b.have = len(buf)
	} else {
		b.parent = (v&(v-1) + root) % l.size
		bit = v & -v
	}
	for bit >>= 1; bit > 0; bit >>= 1 {
		if v+bit < l.size {
			b.child[b.children] = (v + bit + root) % l.size
			b.passed[b.children] = 0
			b.children++
		}
	}
	return b
}

func (b *broadcastTree) Advance() (bool, error) {
	comm := b.lane.comm
	for {
		moved := false
		if b.landing > 0 && comm.Received(b.parent) {
			b.have += b.landing
			b.landing = 0
			b.lane.moved++
			moved = true
		}
		if b.landing == 0 && b.have < len(b.buf) {
			b.landing = min(b.lane.piece, len(b.buf)-b.have)
			b.lane.recv(b.parent, b.buf[b.have:b.have+b.landing])
			moved = true
		}
		done := b.have == len(b.buf)
		for i := range b.children {
			switch {
			case !comm.Sent(b.child[i]):
				done = false
			case b.passed[i] < b.have:
				n := min(b.lane.piece, b.have-b.passed[i])
				b.lane.send(b.child[i], b.buf[b.passed[i]:b.passed[i]+n])
				b.passed[i] += n
				moved, done = true, false
			case b.passed[i] < len(b.buf):
				done = false
			}
		}
		if done {
			b.lane.end()
			return true, nil
		}
		if !moved {
			return false, nil
		}
	}
}

package collective

import "github.com/gorovod/gorovod/internal/core/reduce"

// reducescatterRing is the reducescatter of large data over Comm. The parts go around the ring of members as in ring's
// reducing steps, one step on: at step t member r sends part (r-t-1) mod size and receives part (r-t-2) mod size, so
// that its own part arrives last.
//
// A few pieces of scratch memory hold the data on its way, because the output is too small for it. So the parts are cut
// into bands of bandPieces pieces, and one band after the other goes all the way around. A member never has to receive
// more than a band's pieces of a step before it may send the first of them on. With ringPieces pieces, therefore, the
// members cannot wait for one another in a circle.
//
// Part i is combined in the order i+1, i+2, …, i of the members; 16-bit floats are
// rounded at each hop. The last hop applies the scale.
//
// Steps: size-1 a band, overlapped piece by piece. Bytes: each member sends n less its own part and receives n less its
// successor's, the least possible, and reduces the data that it receives. Memory: ringPieces pieces. Chosen where the
// exchange would need much memory.
type reducescatterRing struct {
	lane       *Lane
	todo       reduction
	steps      int
	bands      int
	prev, next int

	sending   place  // the piece to send next
	receiving place  // the piece whose receive is to be posted next
	arrived   place  // the piece to be received and combined next
	landing   []byte // the memory for that piece; nil if no receive is posted

	// Counts of the pieces to be sent on, over the whole operation. Piece i is in scratch memory at i % ringPieces.
	expected int // a receive has been posted
	held     int // have been combined
	passed   int // posted to the successor
	freed    int // have left
}

const (
	bandPieces = 2
	ringPieces = bandPieces + 2
)

// place is a place in the stream of pieces that a member sends or receives.
type place struct {
	band int
	step int
	off  int // in the band of the step's part
}

// start reads the parts from l.offsets.
func (s *reducescatterRing) start(l *Lane, todo reduction) Op {
	longest := 0
	for m := range l.size {
		longest = max(longest, l.offsets[m+1]-l.offsets[m])
	}
	*s = reducescatterRing{
		lane: l, todo: todo,
		steps: l.size - 1, bands: ceilDiv(longest, bandPieces*l.piece),
		prev: (l.rank + l.size - 1) % l.size, next: (l.rank + 1) % l.size,
	}
	s.sending = s.normal(s.sending, 0)
	s.receiving = s.normal(s.receiving, 1)
	s.arrived = s.receiving
	return s
}

// part is the range of bytes of the band that this member sends at a step, or, if late is 1, the range that it
// receives.
func (s *reducescatterRing) part(p place, late int) (lo, hi int) {
	l := s.lane
	i := (l.rank - p.step - 1 - late) % l.size
	if i < 0 {
		i += l.size
	}
	band := bandPieces * l.piece
	end := l.offsets[i+1]
	lo = min(l.offsets[i]+p.band*band, end)
	return lo, min(lo+band, end)
}

// piece is the range of the next piece at p, in bytes.
func (s *reducescatterRing) piece(p place, late int) (lo, hi int) {
	lo, hi = s.part(p, late)
	lo += p.off
	return lo, min(lo+s.lane.piece, hi)
}

// after is the place behind the piece at p.
func (s *reducescatterRing) after(p place, late int) place {
	lo, hi := s.piece(p, late)
	p.off += hi - lo
	return s.normal(p, late)
}

// normal moves a place at the end of a band's part to the beginning of the next one.
func (s *reducescatterRing) normal(p place, late int) place {
	for p.band < s.bands {
		if lo, hi := s.part(p, late); p.off < hi-lo {
			break
		}
		p = place{band: p.band, step: p.step + 1}
		if p.step == s.steps {
			p = place{band: p.band + 1}
		}
	}
	return p
}

func (s *reducescatterRing) Advance() (bool, error) {
	comm := s.lane.comm
	for {
		sent := comm.Sent(s.next)
		if sent {
			s.freed = s.passed
		}
		s.post()
		switch {
		case s.landing != nil && comm.Received(s.prev):
			s.take()
		case s.sending.band < s.bands && sent && (s.sending.step == 0 || s.passed < s.held):
			s.send()
		case s.sending.band == s.bands && s.arrived.band == s.bands && sent:
			s.lane.end()
			return true, nil
		default:
			return false, nil
		}
	}
}

// last reports that the part arriving at p is this member's own.
func (s *reducescatterRing) last(p place) bool { return p.step == s.steps-1 }

// scratch is the memory of the piece to be sent on with number i.
func (s *reducescatterRing) scratch(i int) []byte {
	piece := s.lane.piece
	return s.lane.temporary(ringPieces * piece)[i%ringPieces*piece:][:piece]
}

// post posts the next receive if none is posted and there is room.
func (s *reducescatterRing) post() {
	if s.landing != nil || s.receiving.band == s.bands {
		return
	}
	lo, hi := s.piece(s.receiving, 1)
	if s.last(s.receiving) {
		at := lo - s.lane.offsets[s.lane.rank]
		s.landing = s.todo.out[at : at+hi-lo]
	} else {
		if s.expected-s.freed == ringPieces {
			return
		}
		s.landing = s.scratch(s.expected)[:hi-lo]
		s.expected++
	}
	s.lane.recv(s.prev, s.landing)
	s.receiving = s.after(s.receiving, 1)
}

// take combines the piece that has landed with this member's input, while the
// next one is arriving.
func (s *reducescatterRing) take() {
	landed, at := s.landing, s.arrived
	s.landing = nil
	s.lane.moved++
	s.post()
	scale := 1.0
	if s.last(at) {
		scale = s.todo.scale
	} else {
		s.held++
	}
	lo, hi := s.piece(at, 1)
	srcs := s.lane.srcs[:2]
	srcs[0], srcs[1] = landed, s.todo.in[lo:hi]
	reduce.Reduce(s.todo.dt, s.todo.op, landed, srcs, scale)
	s.arrived = s.after(at, 1)
}

func (s *reducescatterRing) send() {
	lo, hi := s.piece(s.sending, 0)
	src := s.todo.in[lo:hi]
	if s.sending.step > 0 {
		src = s.scratch(s.passed)[:hi-lo]
		s.passed++
	}
	s.lane.send(s.next, src)
	s.sending = s.after(s.sending, 0)
}

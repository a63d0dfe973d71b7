package negotiate

import "fmt"

// modelBoard is the contract of transport.Board in its plainest form. If
// remote, the marks of all members but 0 travel: Mark says yes at once, and a
// mark that arrives too late comes back through stale.
type modelBoard struct {
	members int
	remote  bool
	slots   []modelSlot
	clock   int
	log     []logRecord
	mail    [][][]byte   // Requests, by member
	marks   [][]slotMark // marks under way, by member
	stale   [][]slotMark // marks sent back, by member
}

type modelSlot struct {
	gen    uint32
	taken  bool
	marked []bool
	n      int
	used   int // clock of the last use
}

type slotMark struct{ slot, gen uint32 }

type logRecord struct {
	slot     uint32
	response []byte // nil: a slot record
}

func newModelBoard(members, capacity int, remote bool) *modelBoard {
	b := &modelBoard{
		members: members,
		remote:  remote,
		slots:   make([]modelSlot, capacity),
		mail:    make([][][]byte, members),
		marks:   make([][]slotMark, members),
		stale:   make([][]slotMark, members),
	}
	for i := range b.slots {
		b.slots[i].marked = make([]bool, members)
	}
	return b
}

func (b *modelBoard) Mark(member int, slot, gen uint32) bool {
	if b.remote && member != 0 {
		b.marks[member] = append(b.marks[member], slotMark{slot, gen})
		return true
	}
	return b.mark(member, slot, gen)
}

// arrive lets the first mark under way from member reach the board.
func (b *modelBoard) arrive(member int) {
	m := b.marks[member][0]
	b.marks[member] = b.marks[member][1:]
	if !b.mark(member, m.slot, m.gen) {
		b.stale[member] = append(b.stale[member], m)
	}
}

func (b *modelBoard) mark(member int, slot, gen uint32) bool {
	s := &b.slots[slot]
	if !s.taken || s.gen != gen {
		return false
	}
	if s.marked[member] {
		panic(fmt.Sprintf("member %d marks slot %d twice", member, slot))
	}
	s.marked[member] = true
	s.n++
	b.clock++
	s.used = b.clock
	if s.n == b.members {
		clear(s.marked)
		s.n = 0
		b.log = append(b.log, logRecord{slot: slot})
	}
	return true
}

func (b *modelBoard) Post(member int, request []byte) {
	b.mail[member] = append(b.mail[member], request)
}

func (b *modelBoard) Publish(response []byte) {
	b.log = append(b.log, logRecord{slot: NoSlot, response: response})
}

func (b *modelBoard) Acquire() (slot, gen uint32, ok bool) {
	best := -1
	for i := range b.slots {
		s := &b.slots[i]
		if s.n > 0 {
			continue
		}
		if best < 0 || b.rank(i) < b.rank(best) {
			best = i
		}
	}
	if best < 0 {
		return NoSlot, 0, false
	}
	s := &b.slots[best]
	b.clock++
	s.gen++
	s.taken = true
	s.used = b.clock
	return uint32(best), s.gen, true
}

// rank orders slots for Acquire: free ones first, then by last use.
func (b *modelBoard) rank(i int) int {
	if !b.slots[i].taken {
		return -1
	}
	return b.slots[i].used
}

func (b *modelBoard) Retire(slot uint32) (marked []int, ok bool) {
	s := &b.slots[slot]
	if !s.taken {
		return nil, false
	}
	marked = b.Marked(slot)
	clear(s.marked)
	s.n = 0
	s.gen++
	s.taken = false
	return marked, true
}

func (b *modelBoard) Marked(slot uint32) (marked []int) {
	for m, is := range b.slots[slot].marked {
		if is {
			marked = append(marked, m)
		}
	}
	return marked
}

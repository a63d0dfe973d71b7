package negotiate

import "fmt"

// modelBoard is the contract of transport.Board in its simplest form. If remote is set, the marks of all members but 0
// travel: Mark returns true at once, and marks that arrive too late come back through stale. A Request does not
// overtake the marks that its sender made before it. A record of the log does not overtake the stale marks that were
// sent back before it was published. A mark may carry data, a number: if those of all members for a card do, the record
// has their sum.
type modelBoard struct {
	members   int
	remote    bool
	cards     []modelCard
	clock     int
	log       []logRecord
	mailboxes [][]posted     // Requests, by member
	marks     [][]modelMarks // under way, by member
	arrived   []int          // how many times marks have arrived, by member
	stale     [][]staleMark  // marks sent back, by member
}

// modelMarks are made together or not at all.
type modelMarks struct {
	marks []CardGen
	data  *int // of the one mark; nil if none travels with it
}

type modelCard struct {
	gen    uint32
	taken  bool
	marked []bool
	n      int
	used   int // clock of the last use
	ahead  int // how many marks have come with data
	sum    int // of that data
}

// end forgets the marks and their data.
func (s *modelCard) end() {
	clear(s.marked)
	s.n, s.ahead, s.sum = 0, 0, 0
}

type posted struct {
	request []byte
	behind  int // how many times marks had been sent before it
}

type staleMark struct {
	marks  []CardGen
	before int // the record that must not overtake this mark
}

type logRecord struct {
	card     uint32
	response []byte // nil: a card record
	result   *int   // with which a card record came; nil: none
}

func newModelBoard(members, capacity int, remote bool) *modelBoard {
	b := &modelBoard{
		members:   members,
		remote:    remote,
		cards:     make([]modelCard, capacity),
		mailboxes: make([][]posted, members),
		marks:     make([][]modelMarks, members),
		arrived:   make([]int, members),
		stale:     make([][]staleMark, members),
	}
	for i := range b.cards {
		b.cards[i].marked = make([]bool, members)
	}
	return b
}

// travels reports whether the board learns of member's marks only later.
func (b *modelBoard) travels(member int) bool { return b.remote && member != 0 }

func (b *modelBoard) Mark(member int, marks ...CardGen) bool {
	return b.MarkWith(member, nil, marks...)
}

// MarkWith is Mark with data for the one mark, nil for none.
func (b *modelBoard) MarkWith(member int, data *int, marks ...CardGen) bool {
	m := modelMarks{marks, data}
	if b.travels(member) {
		b.marks[member] = append(b.marks[member], m)
		return true
	}
	return b.mark(member, m)
}

// arrive lets the first marks under way from member reach the board.
func (b *modelBoard) arrive(member int) {
	marks := b.marks[member][0]
	b.marks[member] = b.marks[member][1:]
	b.arrived[member]++
	if !b.mark(member, marks) {
		b.stale[member] = append(b.stale[member], staleMark{marks.marks, len(b.log)})
	}
}

// mark makes all of the marks or none.
func (b *modelBoard) mark(member int, all modelMarks) bool {
	marks := all.marks
	for _, m := range marks {
		if s := &b.cards[m.Card]; !s.taken || s.gen != m.Gen {
			return false
		}
	}
	completed := 0
	for _, m := range marks {
		s := &b.cards[m.Card]
		if s.marked[member] {
			panic(fmt.Sprintf("member %d marks card %d twice", member, m.Card))
		}
		s.marked[member] = true
		s.n++
		if all.data != nil {
			s.ahead++
			s.sum += *all.data
		}
		b.clock++
		s.used = b.clock
		if s.n == b.members {
			rec := logRecord{card: m.Card}
			if s.ahead == b.members {
				sum := s.sum
				rec.result = &sum
			}
			s.end()
			b.log = append(b.log, rec)
			completed++
		}
	}
	if completed != 0 && completed != len(marks) {
		panic(fmt.Sprintf("%d marks of a group complete it, of %d", completed, len(marks)))
	}
	return true
}

func (b *modelBoard) Post(member int, request []byte) {
	b.mailboxes[member] = append(b.mailboxes[member], posted{request, b.arrived[member] + len(b.marks[member])})
}

// canTake reports whether a Request of member can be taken.
func (b *modelBoard) canTake(member int) bool {
	return len(b.mailboxes[member]) > 0 && b.mailboxes[member][0].behind <= b.arrived[member]
}

// readable reports whether member can read record n of the log.
func (b *modelBoard) readable(member, n int) bool {
	return n < len(b.log) && (len(b.stale[member]) == 0 || b.stale[member][0].before > n)
}

func (b *modelBoard) Publish(response []byte) {
	b.log = append(b.log, logRecord{card: NoCard, response: response})
}

func (b *modelBoard) Acquire() (card, gen uint32, ok bool) {
	best := -1
	for i := range b.cards {
		s := &b.cards[i]
		if s.n > 0 {
			continue
		}
		if best < 0 || b.rank(i) < b.rank(best) {
			best = i
		}
	}
	if best < 0 {
		return NoCard, 0, false
	}
	s := &b.cards[best]
	b.clock++
	s.gen++
	s.taken = true
	s.used = b.clock
	return uint32(best), s.gen, true
}

// rank orders cards for Acquire: free ones first, then by last use.
func (b *modelBoard) rank(i int) int {
	if !b.cards[i].taken {
		return -1
	}
	return b.cards[i].used
}

func (b *modelBoard) Retire(card uint32) (marked []int, ok bool) {
	s := &b.cards[card]
	if !s.taken {
		return nil, false
	}
	marked = b.Marked(card)
	s.end()
	s.gen++
	s.taken = false
	return marked, true
}

func (b *modelBoard) Marked(card uint32) (marked []int) {
	for m, is := range b.cards[card].marked {
		if is {
			marked = append(marked, m)
		}
	}
	return marked
}

package board

import (
	"fmt"
	"math/bits"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// Result is the outcome of a mark.
type Result uint8

// The results of Mark.
const (
	Marked    Result = iota // other members' marks are missing
	Completed               // this mark published the card: ring everybody
	Stale                   // the card has been retired since: send the full Request
	Closed                  // the log is closed: nothing is published any more
)

func (r Result) String() string {
	switch r {
	case Marked:
		return "marked"
	case Completed:
		return "completed"
	case Stale:
		return "stale"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("result(%d)", uint8(r))
}

// Mark declares that member is ready for the card at this generation. The mark
// that completes the card clears all marks and appends the card's record to the
// log in one step, so a completion is published exactly once. A member may mark
// a card again only after it has read that record.
func (b *Board) Mark(member int, card, gen uint32) (Result, error) {
	return b.MarkGroup(member, []transport.Mark{{Card: card, Gen: gen}})
}

// MarkLast is Mark for a member that calls Next at once. If the mark completes the card, it also ends the batch.
// Otherwise the readers would meet at the lock, each to end it.
func (b *Board) MarkLast(member int, card, gen uint32) (Result, error) {
	return b.markCards(member, uint16(member), []transport.Mark{{Card: card, Gen: gen}}, true)
}

// MarkGroup is Mark for several cards in one step. Either all are marked, or one is Stale and none is. Completed: at
// least one card has been published. The cards that these marks complete follow one another in the log, in one batch.
func (b *Board) MarkGroup(member int, group []transport.Mark) (Result, error) {
	return b.MarkFor(member, uint16(member), group)
}

// MarkFor is MarkGroup for a member that stands for several others. last is the one of these that marked last.
func (b *Board) MarkFor(member int, last uint16, group []transport.Mark) (Result, error) {
	return b.markCards(member, last, group, false)
}

// markCards is MarkFor. If ends is set and a mark completes a card, it ends the batch.
func (b *Board) markCards(member int, last uint16, group []transport.Mark, ends bool) (Result, error) {
	if err := b.lock(member); err != nil {
		return 0, err
	}
	defer b.unlock()
	if closed, err := b.isClosed(); closed || err != nil {
		return Closed, err
	}
	for _, m := range group {
		if !b.current(m) {
			return Stale, nil
		}
	}
	result := Marked
	for _, m := range group {
		before := b.regs.last
		r, err := b.mark(member, last, m.Card)
		if err != nil {
			return 0, err
		}
		if r == Marked {
			b.marked(member, m)
		}
		if r == Completed && result == Completed {
			*word(b.log, before) |= chained
		}
		result = max(result, r)
	}
	if ends && result == Completed { // by the last card
		s, _ := b.card(group[len(group)-1].Card)
		b.endBatch(s.record-recordHeader, s.record)
	}
	return result, nil
}

// current reports whether the card stands for something at this generation. The lock is held.
func (b *Board) current(m transport.Mark) bool {
	if int64(m.Card) >= int64(b.cfg.Cards) {
		return false
	}
	s, marks := b.card(m.Card)
	if b.cfg.Learn && newer(m.Gen, s.gen) {
		clear(marks)
		s.gen, s.taken = m.Gen, 1
	}
	return s.taken != 0 && s.gen == m.Gen
}

// newer reports whether generation a came after b. Generations wrap around.
func newer(a, b uint32) bool { return int32(a-b) > 0 }

// mark sets a member's bit. The lock is held.
func (b *Board) mark(member int, last uint16, card uint32) (Result, error) {
	s, marks := b.card(card)
	bit := uint64(1) << (member % 64)
	if marks[member/64]&bit != 0 {
		return 0, fmt.Errorf("%w: member %d marked card %d twice", ErrCorrupt, member, card)
	}
	marks[member/64] |= bit
	if b.stray(marks) {
		return 0, b.overmarked(card)
	}
	if !b.complete(marks) {
		return Marked, nil
	}
	room, err := b.room(recordHeader)
	if err != nil {
		return 0, err
	}
	if !room {
		return 0, fmt.Errorf("%w: no room in the log for card %d", ErrCorrupt, card)
	}
	clear(marks)
	s.last = last
	s.used = b.tick()
	s.record = b.append(cardRecord(transport.RecordCard, card, s.gen), nil)
	return Completed, nil
}

// Last returns the lane member whose mark completed a card last, as MarkFor or Relay was told. A reader may call it
// after it has taken the card's record, and before it marks the card again. Until then nobody changes the word, so Last
// takes no lock.
func (b *Board) Last(card uint32) uint16 {
	if int64(card) >= int64(b.cfg.Cards) {
		return 0
	}
	s, _ := b.card(card)
	return s.last
}

// complete reports whether every member has marked.
func (b *Board) complete(marks []uint64) bool {
	for i := range len(marks) - 1 {
		if marks[i] != ^uint64(0) {
			return false
		}
	}
	rest := b.cfg.Members - 64*(len(marks)-1)
	return marks[len(marks)-1] == ^uint64(0)>>(64-rest)
}

// tick counts a use of a card, and returns the count.
func (b *Board) tick() uint64 {
	b.regs.clock++
	return b.regs.clock
}

// Acquire returns a card for a new Response and its new generation: a free card, or else the one that has been unused
// for longest, which it retires. It takes no card that has marks, and none whose record some reader has not read. ok is
// false if there is no other card.
func (b *Board) Acquire() (card, gen uint32, ok bool, err error) {
	if err := b.lock(0); err != nil {
		return 0, 0, false, err
	}
	defer b.unlock()
	if err := b.raiseFloor(); err != nil {
		return 0, 0, false, err
	}
	if card, ok, err = b.takeSpare(); err == nil && !ok {
		if err = b.lookForSpares(); err == nil {
			card, ok, err = b.takeSpare()
		}
	}
	if err != nil || !ok {
		return 0, 0, false, err
	}
	s, _ := b.card(card)
	if s.taken != 0 {
		if err := b.announce(card, s); err != nil {
			return 0, 0, false, err
		}
	}
	s.taken = 1
	s.used = b.tick()
	s.renew()
	b.own.keep(card, s)
	return card, s.gen, true, nil
}

// announce appends the end of the card's generation to the log, unless the log is closed, because then everything under
// way fails anyway. The lock is held.
func (b *Board) announce(n uint32, s *card) error {
	if !b.cfg.Announce || b.regs.closed.Load() != 0 {
		return nil
	}
	room, err := b.room(recordHeader)
	if err != nil {
		return err
	}
	if !room {
		return fmt.Errorf("%w: no room in the log for the end of card %d", ErrCorrupt, n)
	}
	s.record = b.append(cardRecord(transport.RecordRetired, n, s.gen), nil)
	return nil
}

// renew starts the card's next generation; 0 is no generation.
func (s *card) renew() uint32 {
	s.gen++
	if s.gen == 0 {
		s.gen = 1
	}
	return s.gen
}

// Retire ends the card's generation, so that later marks of it are Stale. It drops the marks that are there, and
// returns their members. A record of the card that is in the log already remains valid, because it comes before any
// record of the card's next use. ok is false for a card that nobody has acquired.
func (b *Board) Retire(card uint32) (marked []int, ok bool, err error) {
	if int64(card) >= int64(b.cfg.Cards) {
		return nil, false, nil
	}
	if err := b.lock(0); err != nil {
		return nil, false, err
	}
	defer b.unlock()
	s, marks := b.card(card)
	if err := b.checkKept(card, s); err != nil {
		return nil, false, err
	}
	if s.taken == 0 {
		return nil, false, nil
	}
	marked = b.membersIn(marks)
	clear(marks)
	if err := b.announce(card, s); err != nil {
		return nil, false, err
	}
	s.taken = 0
	s.renew()
	b.own.keep(card, s)
	b.spares = append(b.spares, spare{card: card})
	return marked, true, nil
}

// Forget ends a generation of a card on a board that learns. It drops the present marks. Later marks of this generation
// or an older one are Stale.
func (b *Board) Forget(card, gen uint32) error {
	if int64(card) >= int64(b.cfg.Cards) {
		return nil
	}
	if err := b.lock(0); err != nil {
		return err
	}
	defer b.unlock()
	s, marks := b.card(card)
	if newer(s.gen, gen) {
		return nil
	}
	clear(marks)
	s.gen, s.taken = gen, 0
	return nil
}

// Marked returns the members that have marked the card.
func (b *Board) Marked(card uint32) ([]int, error) {
	if int64(card) >= int64(b.cfg.Cards) {
		return nil, nil
	}
	if err := b.lock(0); err != nil {
		return nil, err
	}
	defer b.unlock()
	_, marks := b.card(card)
	return b.membersIn(marks), nil
}

func anyMark(marks []uint64) bool {
	for _, w := range marks {
		if w != 0 {
			return true
		}
	}
	return false
}

func (b *Board) membersIn(marks []uint64) []int {
	var members []int
	for i, w := range marks {
		for ; w != 0; w &= w - 1 {
			if m := 64*i + bits.TrailingZeros64(w); m < b.cfg.Members {
				members = append(members, m)
			}
		}
	}
	return members
}

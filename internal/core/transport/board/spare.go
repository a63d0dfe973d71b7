package board

import (
	"cmp"
	"slices"
)

// spare is a card that Acquire may take for a new name: Acquire could take it when it last looked at all cards, or it
// has been retired since. In a job with more names than cards, each tensor needs a card, and a look at all cards costs
// as much as a thousand marks.
type spare struct {
	card uint32
	used uint64 // useOf at that time
}

// useOf is the time of a card's last use, by the board's clock: 0 for a free card.
func useOf(s *card) uint64 {
	if s.taken == 0 {
		return 0
	}
	return s.used
}

// takeSpare takes the next spare card that is still spare. The lock is held.
func (b *Board) takeSpare() (card uint32, ok bool, err error) {
	for len(b.spares) > 0 {
		last := len(b.spares) - 1
		next := b.spares[last]
		b.spares = b.spares[:last]
		s, marks := b.card(next.card)
		if err := b.checkKept(next.card, s); err != nil {
			return 0, false, err
		}
		if useOf(s) == next.used && b.isSpare(s, marks) {
			return next.card, true, nil
		}
	}
	return 0, false, nil
}

// lookForSpares finds all spare cards. Acquire takes the last one first, so the card that has been unused for longest
// comes last. The lock is held.
func (b *Board) lookForSpares() error {
	b.spares = b.spares[:0]
	for i := range uint32(b.cfg.Cards) {
		s, marks := b.card(i)
		if err := b.checkKept(i, s); err != nil {
			return err
		}
		if b.isSpare(s, marks) {
			b.spares = append(b.spares, spare{i, useOf(s)})
		}
	}
	slices.SortFunc(b.spares, func(x, y spare) int {
		return cmp.Or(cmp.Compare(y.used, x.used), cmp.Compare(y.card, x.card))
	})
	return nil
}

// isSpare reports that nobody has marked the card, and that all readers have read its record. The caller has just
// raised the floor.
func (b *Board) isSpare(s *card, marks []uint64) bool {
	return s.record <= b.regs.floor && !anyMark(marks)
}

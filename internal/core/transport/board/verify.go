package board

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// own holds the words that the users of one Board value have last written into the region. Nobody else writes these
// words, so a difference is damage. Without this check the damage would look like a slow member, and all would wait for
// that member.
type own struct {
	reads  []bool       // by reader: it has moved its cursor. Only the reader uses it
	closed map[int]bool // by member: it has called Close. Guarded by the lock, like the rest
	marks  [][]mark     // by member and card: its last mark
	cards  []uint64     // by card: generation and taken, as Acquire and Retire left them; 0: never
}

// mark is a mark that did not complete its card.
type mark struct {
	gen    uint32 // 0: there is none
	record uint64 // the card's record at the time of the mark: it changes when the card is completed
}

func newOwn(c Config) own {
	return own{make([]bool, c.Readers), map[int]bool{}, make([][]mark, c.Members), make([]uint64, c.Cards)}
}

// marked remembers a member's mark. The lock is held.
func (b *Board) marked(member int, m transport.Mark) {
	marks := b.own.marks[member]
	if marks == nil {
		marks = make([]mark, b.cfg.Cards)
		b.own.marks[member] = marks
	}
	s, _ := b.card(m.Card)
	marks[m.Card] = mark{m.Gen, s.record}
}

// keep remembers the card's state after the coordinator has changed it.
func (o *own) keep(i uint32, s *card) { o.cards[i] = s.word() }

// word is generation and taken in one word.
func (s *card) word() uint64 { return uint64(s.gen)<<32 | uint64(s.taken) }

// Check checks that the region is in a state that members following the protocol can produce, as far as the region
// shows it. The error wraps ErrCorrupt, unless Check cannot get the lock. Safe on any goroutine.
func (b *Board) Check(member int) error {
	r := b.regs
	if r.magic.Load() != magic || r.members != uint64(b.cfg.Members) || r.readers != uint64(b.cfg.Readers) ||
		r.cards != uint64(b.cfg.Cards) || r.logBytes != uint64(b.cfg.LogBytes) ||
		r.mailboxBytes != uint64(b.cfg.MailboxBytes) || r.rules != b.cfg.rules() || r.slots != b.cfg.slots() {
		return fmt.Errorf("%w: its shape has changed", ErrCorrupt)
	}
	if _, err := b.isClosed(); err != nil {
		return err
	}
	if err := b.lock(member); err != nil {
		return err
	}
	defer b.unlock()
	if err := b.raiseFloor(); err != nil {
		return err
	}
	if tail, cut := r.tail.Load(), r.cut.Load(); cut-r.floor > tail-r.floor || cut%8 != 0 {
		return b.corruptLog("cut at %d, floor %d, end %d", cut, r.floor, tail)
	}
	if by := r.closed.Load(); by == uint32(member)+1 && b.cfg.Closers == 0 && !b.own.closed[member] {
		return b.corruptLog("closed by member %d, who has not closed it", member)
	}
	return b.checkCards()
}

// Verify is Check, and also compares the region with the words that this Board value has written there. Use it on a
// board of which each member has a Board value of its own. The goroutine that calls Next calls Verify when nothing has
// come for long.
func (b *Board) Verify(member int) error {
	if err := b.Check(member); err != nil {
		return err
	}
	for i := range b.readers {
		if at := b.cursor(i).Load(); b.own.reads[i] && at != b.readers[i].pos {
			return b.corruptLog("reader %d is said to be at %d, and is at %d", i, at, b.readers[i].pos)
		}
	}
	for m := range b.posters {
		if err := b.verifyBox(m); err != nil {
			return err
		}
	}
	return nil
}

// verifyBox checks both ends of a mailbox, as far as this Board value has written them.
func (b *Board) verifyBox(m int) error {
	w, box := &b.posters[m], b.box(m)
	w.mu.Lock()
	posted, tail := w.posted, w.tail
	end := box.tail.Load()
	w.mu.Unlock()
	if posted && end != tail {
		return b.corruptMailbox(m, "its end is said to be at %d, and is at %d", end, tail)
	}
	if head := box.head.Load(); b.inbox.reads && head != b.inbox.heads[m] {
		return b.corruptMailbox(m, "it is said to be read up to %d, and is up to %d", head, b.inbox.heads[m])
	}
	return nil
}

// checkCards checks that the marks of this Board value are still there unless their card was completed, and that the
// cards are as the coordinator has left them. The lock is held.
func (b *Board) checkCards() error {
	for i := range uint32(b.cfg.Cards) {
		s, bits := b.card(i)
		if err := b.checkKept(i, s); err != nil {
			return err
		}
		if b.stray(bits) {
			return b.overmarked(i)
		}
	}
	for member, marks := range b.own.marks {
		for i, m := range marks {
			if m.gen == 0 {
				continue
			}
			s, bits := b.card(uint32(i))
			switch {
			case newer(m.gen, s.gen):
				return fmt.Errorf("%w: card %d has generation %d, after %d", ErrCorrupt, i, s.gen, m.gen)
			case m.gen == s.gen && s.taken != 0 && m.record == s.record && bits[member/64]&(1<<(member%64)) == 0 &&
				b.regs.closed.Load() == 0:
				return fmt.Errorf("%w: card %d has lost the mark of member %d", ErrCorrupt, i, member)
			}
		}
	}
	return nil
}

// checkKept checks that a card is as the coordinator has left it.
func (b *Board) checkKept(i uint32, s *card) error {
	if kept := b.own.cards[i]; kept != 0 && kept != s.word() {
		return fmt.Errorf("%w: card %d has generation %d (%d), %d (%d) was given to it", ErrCorrupt, i, s.gen, s.taken,
			kept>>32, uint32(kept))
	}
	return nil
}

// stray reports marks of members that do not exist.
func (b *Board) stray(marks []uint64) bool {
	rest := b.cfg.Members - 64*(len(marks)-1)
	return rest < 64 && marks[len(marks)-1]>>rest != 0
}

func (b *Board) overmarked(card uint32) error {
	return fmt.Errorf("%w: card %d is marked by more than %d members", ErrCorrupt, card, b.cfg.Members)
}

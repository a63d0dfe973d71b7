package board

import (
	"fmt"
	"sync/atomic"
)

// own is what the users of one Board value have written into the region last. Nobody
// else writes these words, so that one which differs has been damaged: a damage that
// would otherwise look like a member that is slow, and for which all would wait.
type own struct {
	reads  []bool          // by reader: it has moved its cursor. The reader's
	marks  []atomic.Uint32 // by slot: the generation of a mark that has not led to a record yet; 0: none
	slots  []uint64        // by slot: its generation and, in bit 0, whether it is taken, as Acquire and Retire left them; 0: never. The coordinator's
	closed atomic.Bool     // Close has been called
}

func newOwn(c Config) own {
	return own{reads: make([]bool, c.Readers), marks: make([]atomic.Uint32, c.Slots), slots: make([]uint64, c.Slots)}
}

// keep remembers what the coordinator has made of a slot.
func (o *own) keep(i uint32, s *slot) { o.slots[i] = uint64(s.gen)<<1 | uint64(s.taken&1) }

// Check tells whether the region can be what members have made of it who keep to the
// protocol, as far as that shows without a call. The error wraps ErrCorrupt, but where
// the lock cannot be had. Safe on any goroutine.
func (b *Board) Check(member int) error {
	r := b.regs
	if r.magic.Load() != magic || r.members != uint64(b.cfg.Members) || r.readers != uint64(b.cfg.Readers) || r.slots != uint64(b.cfg.Slots) ||
		r.logBytes != uint64(b.cfg.LogBytes) || r.mailBytes != uint64(b.cfg.MailBytes) || r.rules != b.cfg.rules() {
		return fmt.Errorf("%w: its shape has changed", ErrCorrupt)
	}
	if by := r.closed.Load(); int64(by) > int64(b.cfg.closers()) {
		return b.corruptLog("closed by member %d of %d", int64(by)-1, b.cfg.closers())
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
	return nil
}

// Verify is Check, and compares the region with what this Board value has written
// there. It is for a board of which each member has a value of its own, and is called
// by who calls Next, when nothing has come for long.
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
	if by := b.regs.closed.Load(); by == uint32(member)+1 && !b.own.closed.Load() {
		return b.corruptLog("closed by member %d, who has not closed it", member)
	}
	if err := b.lock(member); err != nil {
		return err
	}
	defer b.unlock()
	return b.verifySlots(member)
}

// verifyBox checks both ends of a mailbox, as far as they are this member's.
func (b *Board) verifyBox(m int) error {
	w, box := &b.posters[m], b.box(m)
	w.mu.Lock()
	posted, tail := w.posted, w.tail
	end := box.tail.Load()
	w.mu.Unlock()
	if posted && end != tail {
		return b.corruptMail(m, "its end is said to be at %d, and is at %d", end, tail)
	}
	if head := box.head.Load(); b.inbox.reads && head != b.inbox.heads[m] {
		return b.corruptMail(m, "it is said to be read up to %d, and is up to %d", head, b.inbox.heads[m])
	}
	return nil
}

// verifySlots checks that the member's marks stand that have not led to a record, and
// that slots are what the coordinator has made of them. The lock is held.
func (b *Board) verifySlots(member int) error {
	upToDate := member < len(b.readers) && b.own.reads[member] && b.regs.tail.Load() == b.readers[member].pos
	for i := range uint32(b.cfg.Slots) {
		s, marks := b.slot(i)
		if kept := b.own.slots[i]; kept != 0 && kept != uint64(s.gen)<<1|uint64(s.taken) {
			return fmt.Errorf("%w: slot %d has generation %d (%d), %d (%d) was given to it", ErrCorrupt, i, s.gen, s.taken, kept>>1, kept&1)
		}
		gen := b.own.marks[i].Load()
		if upToDate && gen != 0 && gen == s.gen && s.taken != 0 && b.regs.closed.Load() == 0 && marks[member/64]&(1<<(member%64)) == 0 {
			return fmt.Errorf("%w: slot %d has lost the mark of member %d", ErrCorrupt, i, member)
		}
	}
	return nil
}

package board

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// Post copies an encoded Request into the member's mailbox. False means that
// there is no room now.
func (b *Board) Post(member int, p []byte) (bool, error) {
	need := uint64(messageSize(len(p)))
	if len(p) > transport.MaxRecord || need > uint64(b.cfg.MailboxBytes) {
		return false, fmt.Errorf("board: a request of %d bytes does not fit into the mailbox (at most %d)",
			len(p), min(transport.MaxRecord, b.cfg.MailboxBytes-recordHeader))
	}
	if member >= len(b.posters) {
		return false, fmt.Errorf("board: a request of member %d; %d members have mailboxes", member,
			len(b.posters))
	}
	w := &b.posters[member]
	w.mu.Lock()
	defer w.mu.Unlock()
	box, ring := b.box(member), b.boxRing(member)
	free := func() uint64 { return uint64(len(ring)) - (w.tail - box.head.Load()) }
	room := free()
	if room < need {
		// As in Publish: the coordinator moves the head before it looks at starved.
		box.starved.Store(1)
		room = free()
	}
	if room > uint64(len(ring)) {
		return false, b.corruptMailbox(member, "head ahead of the end %d", w.tail)
	}
	if room < need {
		return false, nil
	}
	*word(ring, w.tail) = uint64(len(p))
	put(ring, w.tail+recordHeader, p)
	w.tail, w.posted = w.tail+need, true
	box.tail.Store(w.tail)
	b.regs.posts.Add(1)
	return true, nil
}

// TakeRequests calls f for every posted Request, in order per member. from lists that member alone. from and p are
// valid during the call only; f may call Publish, Acquire and Retire. If nothing is posted, a call costs one load.
func (b *Board) TakeRequests(f func(from []int, p []byte)) error {
	posts := b.regs.posts.Load()
	if posts == b.inbox.posts {
		return nil
	}
	b.inbox.posts, b.inbox.reads = posts, true
	for m := range b.posters {
		if err := b.readBox(m, f); err != nil {
			return err
		}
	}
	return nil
}

func (b *Board) readBox(member int, f func(from []int, p []byte)) error {
	box, ring := b.box(member), b.boxRing(member)
	pos, tail := b.inbox.heads[member], box.tail.Load()
	if pos == tail {
		return nil
	}
	if tail-pos > uint64(len(ring)) || tail%8 != 0 {
		return b.corruptMailbox(member, "end %d, read up to %d", tail, pos)
	}
	for pos != tail {
		n := *word(ring, pos)
		if n > transport.MaxRecord || uint64(messageSize(int(n))) > tail-pos {
			return b.corruptMailbox(member, "request of %d bytes, %d before the end", n, tail-pos)
		}
		if cap(b.inbox.bytes) < int(n) {
			b.inbox.bytes = make([]byte, roundUp(int(n), 4096))
		}
		p := b.inbox.bytes[:n]
		get(ring, pos+recordHeader, p)
		pos += uint64(messageSize(int(n)))
		b.inbox.heads[member] = pos
		box.head.Store(pos)
		b.inbox.from[0] = member
		f(b.inbox.from[:], p)
	}
	if box.starved.Load() != 0 && box.starved.CompareAndSwap(1, 0) {
		b.wake(member)
	}
	return nil
}

func (b *Board) corruptMailbox(member int, format string, args ...any) error {
	return fmt.Errorf("%w: mailbox of member %d: %s", ErrCorrupt, member, fmt.Sprintf(format, args...))
}

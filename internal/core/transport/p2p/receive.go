package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// box holds this rank's messages from one sender.
type box struct {
	m    *Endpoint
	from int

	mu      sync.Mutex
	conn    *link.Conn           // nil until the sender has connected
	waiting map[uint32][]*waiter // by tag, oldest first
	kept    map[uint32][]kept    // by tag, oldest first; none for a tag for which a Recv waits
	stuck   map[uint32]int       // by tag, how many messages wait for room or for a waiter
	bytes   int                  // of kept messages, and of messages that are being read to be kept
	changed chan struct{}        // closed at the next change; nil if nobody waits for one
	err     error                // why nothing more comes
	visited sync.Once            // see visit
}

// kept is a message that nobody has asked for yet.
type kept struct {
	p     []byte
	label uint16
}

// waiter is a Recv that waits.
type waiter struct {
	p     []byte
	stage stage // guarded by box.mu, like the other fields
	n     int
	label uint16
	err   error
	done  chan struct{} // closed when it has ended, with n, label and err set
}

// stage says who has a waiter's buffer. The package comment shows the states.
type stage uint8

const (
	waiting     stage = iota // nobody; it is in box.waiting
	filling                  // the box's reader
	interrupted              // the box's reader; Recv waits for it
	ended                    // the caller of Recv
)

// errCancelled is a waiter's error after the caller has got p back.
var errCancelled = errors.New("cancelled")

func (b *box) init(m *Endpoint, from int) {
	b.m, b.from = m, from
	b.waiting, b.kept, b.stuck = make(map[uint32][]*waiter), make(map[uint32][]kept), make(map[uint32]int)
}

// Recv waits for the next message of a rank, which may be this one, with this tag and returns its length and label. If
// the message is longer than p, the error is a TooLong, and the Endpoint keeps the message for another Recv. If ctx
// ends, no message is lost.
func (m *Endpoint) Recv(ctx context.Context, from int, tag uint32, p []byte) (n int, label uint16, err error) {
	if err = m.enter(ctx, from); err == nil {
		b := &m.boxes[from]
		b.mu.Lock()
		n, label, err = b.receive(ctx, tag, p)
	}
	if err == nil {
		return n, label, nil
	}
	if cause := m.err(); cause != nil {
		return 0, 0, cause
	}
	return 0, 0, fmt.Errorf("receive with tag %d from rank %d: %w", tag, from, err)
}

// receive is Recv on one box. b.mu is held when it is called, and not when it returns.
func (b *box) receive(ctx context.Context, tag uint32, p []byte) (int, uint16, error) {
	if q := b.kept[tag]; len(q) > 0 {
		defer b.mu.Unlock()
		label := q[0].label
		if err := b.fits(header{tag: tag, label: label, length: len(q[0].p)}, p); err != nil {
			return 0, 0, err
		}
		n := copy(p, q[0].p)
		b.bytes -= cost(n)
		q[0] = kept{}
		setOrDelete(b.kept, tag, q[1:])
		b.change()
		return n, label, nil
	}
	if b.err != nil {
		defer b.mu.Unlock()
		return 0, 0, b.err
	}
	w := &waiter{p: p, done: make(chan struct{})}
	b.waiting[tag] = append(b.waiting[tag], w)
	b.change()
	b.mu.Unlock()
	for parting := b.m.parting; ; {
		select {
		case <-parting:
			b.visit()
			parting = nil
			continue
		case <-w.done:
		case <-ctx.Done():
			b.giveUp(tag, w)
		case <-b.m.ended:
			b.giveUp(tag, w)
		}
		break
	}
	switch {
	case w.err != errCancelled:
		return w.n, w.label, w.err
	case ctx.Err() != nil:
		return 0, 0, ctx.Err()
	}
	return 0, 0, b.m.err()
}

// giveUp takes back w's buffer. When it returns, w has ended, and nothing touches w.p.
func (b *box) giveUp(tag uint32, w *waiter) {
	b.mu.Lock()
	switch w.stage {
	case waiting:
		i := slices.Index(b.waiting[tag], w)
		setOrDelete(b.waiting, tag, slices.Delete(b.waiting[tag], i, i+1))
		w.finish(header{}, errCancelled)
	case filling:
		w.stage = interrupted
		b.conn.SetReadDeadline(past)
	}
	b.mu.Unlock()
	<-w.done
}

// finish ends w. box.mu is held.
func (w *waiter) finish(h header, err error) {
	w.n, w.label, w.err, w.stage = h.length, h.label, err, ended
	close(w.done)
}

func (b *box) fits(h header, p []byte) error {
	if h.length > len(p) {
		return &TooLong{From: b.from, Length: h.length, Label: h.label, Room: len(p)}
	}
	return nil
}

func cost(length int) int { return messageCost + length }

func setOrDelete[T any](m map[uint32][]T, tag uint32, q []T) {
	if len(q) == 0 {
		delete(m, tag)
	} else {
		m[tag] = q
	}
}

// change wakes the goroutines that wait for room or for a waiter. b.mu is held.
func (b *box) change() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// next takes the first waiter whose buffer is large enough. The waiters before it end with a TooLong. It returns nil if
// there is none. b.mu is held.
func (b *box) next(h header) *waiter {
	for q := b.waiting[h.tag]; len(q) > 0; {
		w := q[0]
		q = q[1:]
		setOrDelete(b.waiting, h.tag, q)
		err := b.fits(h, w.p)
		if err == nil {
			return w
		}
		w.finish(header{}, err)
	}
	return nil
}

// place decides where a message goes: to the waiter that it returns, or, if that is nil, into memory, of which it has
// then counted the bytes. It blocks until one of the two is possible. If there is no error, it returns with b.mu held.
func (b *box) place(ctx context.Context, h header) (*waiter, error) {
	for {
		b.mu.Lock()
		if w := b.next(h); w != nil {
			return w, nil
		}
		if b.bytes+cost(h.length) <= MaxKept {
			b.bytes += cost(h.length)
			return nil, nil
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.stuck[h.tag]++
		b.m.announce()
		b.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		case <-b.m.ended:
			err = b.m.err()
		}
		b.mu.Lock()
		if b.stuck[h.tag]--; b.stuck[h.tag] == 0 {
			delete(b.stuck, h.tag)
		}
		b.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// put delivers a message that this rank sends to itself.
func (b *box) put(ctx context.Context, tag uint32, label uint16, p []byte) error {
	h := header{tag: tag, label: label, length: len(p)}
	w, err := b.place(ctx, h)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	if w != nil {
		copy(w.p, p)
		w.finish(h, nil)
		return nil
	}
	b.kept[tag] = append(b.kept[tag], kept{slices.Clone(p), label})
	b.m.announce()
	return nil
}

// store keeps a message whose bytes have been counted. If a Recv has begun to wait for it meanwhile, store gives it to
// that Recv.
func (b *box) store(h header, p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.next(h); w != nil {
		b.bytes -= cost(len(p))
		copy(w.p, p)
		w.finish(h, nil)
		return
	}
	b.kept[h.tag] = append(b.kept[h.tag], kept{p, h.label})
	b.m.announce()
}

// fail notes that no more messages come. Kept messages can still be received.
func (b *box) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return
	}
	b.err = err
	for tag, q := range b.waiting {
		for _, w := range q {
			w.finish(header{}, err)
		}
		delete(b.waiting, tag)
	}
	b.m.announce()
}

// orphanGrace is how long orphan waits for the sender's own connection after another connection has shown that the
// sender has gone. The sender's last messages may be on its own connection.
const orphanGrace = time.Second

// orphan fails the box of a sender that has gone without ever connecting.
func (b *box) orphan(err error) {
	t := time.NewTimer(orphanGrace)
	defer t.Stop()
	if !b.connected() {
		select {
		case <-t.C:
		case <-b.m.ended:
			return
		}
	}
	if !b.connected() {
		b.fail(err)
	} // else its reader notices the end
}

func (b *box) connected() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conn != nil
}

// connect takes the sender's connection. It returns false if there is one already.
func (b *box) connect(c *link.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		return false
	}
	b.conn = c
	return true
}

// close says goodbye to the sender if the Endpoint ends in good order.
func (b *box) close(orderly bool) {
	b.mu.Lock()
	c, failed := b.conn, b.err
	b.mu.Unlock()
	if c != nil && orderly && failed == nil {
		sayGoodbye(c)
	}
}

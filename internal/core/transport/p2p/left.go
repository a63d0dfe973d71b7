package p2p

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Left says that a rank has closed its endpoint in good order. It sends and receives nothing any more.
type Left struct{ Rank int }

func (e *Left) Error() string { return fmt.Sprintf("rank %d has closed its endpoint", e.Rank) }

// Lost says that a connection to a rank has ended without a goodbye. The rank has died, or it has left in order, and
// its goodbye was lost because it had not read all that it was sent.
type Lost struct {
	Rank int
	Addr net.Addr
	Err  error
}

func (e *Lost) Error() string {
	return fmt.Sprintf("connection to rank %d (%v) lost: %v", e.Rank, e.Addr, e.Err)
}

func (e *Lost) Unwrap() error { return e.Err }

func (m *Endpoint) isParting() bool {
	select {
	case <-m.parting:
		return true
	default:
		return false
	}
}

// visit makes a connection to the sender, unless one exists, because some rank has left, and it may be this one. The
// connection carries no messages: its watcher notices when the sender leaves, or dies. Without need ranks make no such
// connections, because a large world has many pairs of ranks. visit does not block.
func (b *box) visit() {
	if b.from != b.m.cfg.Rank {
		b.visited.Do(func() { b.m.start(b.look) })
	}
}

func (b *box) look() {
	if b.connected() {
		return // the connection's reader notices its end
	}
	m, o := b.m, &b.m.outs[b.from]
	select {
	case o.turn <- struct{}{}:
	case <-m.ended:
		return
	}
	err := o.connect(m.ctx)
	if err != nil && m.err() == nil {
		err = o.fail(err)
	}
	<-o.turn
	if err != nil && m.err() == nil {
		b.orphan(err)
	}
}

// gone decides whether to dial the receiver once more after an attempt has failed. While no rank has left, a refusal
// may be a moment's trouble of the receiver's host.
func (o *outbox) gone(last error) error {
	if last != nil && o.m.isParting() && refused(last) {
		return &Left{o.to}
	}
	return nil
}

// refused reports whether nobody listens at any of the addresses that have been tried.
func refused(err error) bool {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	for _, one := range several.Unwrap() {
		if !refused(one) {
			return false
		}
	}
	return true
}

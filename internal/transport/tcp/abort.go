package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/guard"
	"github.com/gorovod/gorovod/internal/transport"
)

const (
	// abortLinger bounds the telling of an abort to the others.
	abortLinger = 300 * time.Millisecond
	// maxCause is the largest abort message in bytes.
	maxCause = 16 << 10
)

// Err implements transport.Network.
func (n *Network) Err() error {
	if c := n.cause.Load(); c != nil {
		return c.err
	}
	return nil
}

// Abort implements transport.Network. It does not block: the others are told by
// goroutines, which Close waits for. A closed network cannot be aborted.
func (n *Network) Abort(cause error) {
	if cause == nil {
		cause = errors.New("aborted without a cause")
	}
	origin, text := n.cfg.Rank, cause.Error()
	if told := (*transport.Report)(nil); errors.As(cause, &told) {
		origin, text = told.Rank, told.Text
	}
	n.abort(cause, origin, text)
}

// abort latches err; origin and text are what the others are told.
func (n *Network) abort(err error, origin int, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended || !n.cause.CompareAndSwap(nil, &causeOf{err}) {
		return
	}
	last := abortMessage(origin, text)
	deadline := time.Now().Add(abortLinger)
	for c := range n.conns {
		c.SetWriteDeadline(deadline)
	}
	n.lastWord = last
	close(n.aborted)
	n.lastCancel()
	n.bell.Ring()
	inbound := n.connsLocked(func(c *conn) bool { return c.inbound })
	lanes := slices.Collect(maps.Values(n.lanes))
	n.startLocked(&n.farewells, func() {
		n.cfg.Wake()
		for _, c := range inbound {
			c.Write(last)
		}
		n.tellStrangers(lanes)
	})
}

// tellStrangers takes the news to those that no connection has made known to
// this rank, and that wait for it or pass the news on: the coordinators of its
// lanes, and the members of those that it coordinates.
func (n *Network) tellStrangers(lanes []*lane) {
	var dials sync.WaitGroup
	told := make(map[int]bool)
	for _, l := range lanes {
		members := []int{0}
		if l.me == 0 {
			members = n.unheard(l)
		}
		for _, m := range members {
			rank := l.members[m]
			if told[rank] || n.peers[rank].left.Load() || !l.controlOut[m].claim() {
				continue // else its writer does it
			}
			told[rank] = true
			guard.In(&dials, "the telling of an abort", func(error) {}, func() { l.tell(m) })
		}
	}
	dials.Wait()
}

// unheard lists the other members that have no control connection to this rank.
func (n *Network) unheard(l *lane) (members []int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for m, heard := range l.controlled {
		if !heard && m != l.me {
			members = append(members, m)
		}
	}
	return members
}

// tell takes the abort to a member over a connection made for that.
func (l *lane) tell(to int) {
	n := l.net
	ctx, cancel := context.WithTimeout(context.Background(), abortLinger)
	defer cancel()
	rank := l.members[to]
	first := int(n.peers[rank].route.Load())
	if c, _, err := n.dialer.Try(ctx, rank, first, n.hello(l, rank, control).encode()); err == nil {
		c.SetDeadline(time.Now().Add(abortLinger))
		c.Write(n.lastWord)
		c.Close()
	}
}

func (n *Network) connsLocked(which func(*conn) bool) []*conn {
	var out []*conn
	for c := range n.conns {
		if which(c) {
			out = append(out, c)
		}
	}
	return out
}

func abortMessage(origin int, text string) []byte {
	text = text[:min(len(text), maxCause-4)]
	p := make([]byte, headerSize+4, headerSize+4+len(text))
	binary.LittleEndian.PutUint32(p[headerSize:], uint32(origin))
	p = append(p, text...)
	header{kind: messageAbort, length: uint64(len(p) - headerSize)}.put(p)
	return p
}

// takeAbort reads an abort message's payload and adopts the cause.
func (n *Network) takeAbort(r io.Reader, h header) error {
	if h.length < 4 || h.length > maxCause {
		return fmt.Errorf("abort message of %d bytes", h.length)
	}
	p := make([]byte, h.length)
	if err := readPayload(r, p); err != nil {
		return err
	}
	origin, text := int(binary.LittleEndian.Uint32(p)), string(p[4:])
	n.abort(&transport.Report{Rank: origin, Text: text}, origin, text)
	return nil
}

// farewell says the last word on a connection that this rank has dialled: the
// abort, else goodbye. Only the connection's writer may call it, between
// messages.
func (n *Network) farewell(c *conn, sequence uint32) {
	word := goodbye()
	if n.isAborted() {
		word = slices.Clone(n.lastWord)
	}
	binary.LittleEndian.PutUint32(word[4:], sequence)
	c.Write(word)
	c.CloseWrite()
}

// broken is called by the reader or writer of a connection that has failed. A
// broken connection proves nobody's death, but the lane cannot go on: unless
// the cause becomes known within the grace, the breakage is the cause.
func (n *Network) broken(c *conn, err brokenError) {
	if n.ending() {
		return
	}
	p := &n.peers[c.rank]
	cause := fmt.Errorf("connection to %v lost: %w", c, err.error)
	if errors.Is(err.error, syscall.EFAULT) {
		cause = fmt.Errorf("%s: the program has freed or unmapped the memory of an operation before it ended: %w",
			n.cfg.Describe(n.cfg.Rank), cause)
	}
	if !p.lost.Swap(true) {
		n.start(&n.goroutines, func() { n.cfg.Lost(c.rank, cause) })
	}
	n.start(&n.goroutines, func() {
		// A rank's goodbye may come over another connection.
		if n.afterGrace() && !c.abandoned() && (err.inside || !p.left.Load()) {
			n.Abort(cause)
		}
	})
}

// departed notes that a rank has closed its network. That is in order once the
// logs that it takes part in are closed; a lane that is still open can never go on.
func (n *Network) departed(rank int) {
	if n.peers[rank].left.Swap(true) {
		return
	}
	n.start(&n.goroutines, func() {
		if !n.afterGrace() {
			return
		}
		for _, l := range n.openLanes() {
			member, ok := l.member(rank)
			if ok && l.board.Linked(member) && l.board.ClosedBy() < 0 && n.forsaken(l) {
				n.Abort(fmt.Errorf("rank %d has closed its network while lane %d was open", rank, l.id))
				return
			}
		}
	})
}

// afterGrace waits for the grace; false if the network has come to its end before.
func (n *Network) afterGrace() bool {
	t := time.NewTimer(n.cfg.Grace)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-n.aborted:
	case <-n.leaving:
	}
	return false
}

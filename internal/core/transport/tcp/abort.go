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
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/core/transport"
)

const (
	// abortLinger bounds the time for telling the others of an abort.
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

// Abort implements transport.Network. It does not block: goroutines tell the others, and
// Close waits for them. A closed network cannot be aborted.
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

// abort latches err; the others are told origin and text.
func (n *Network) abort(err error, origin int, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended || !n.cause.CompareAndSwap(nil, &causeOf{err}) {
		return
	}
	last := abortMessage(origin, text)
	n.lastWord, n.lastBy = last, time.Now().Add(abortLinger)
	for c := range n.conns {
		c.SetWriteDeadline(n.lastBy)
	}
	close(n.aborted)
	n.lastCancel()
	n.bell.Ring()
	inbound := n.connsLocked(func(c *conn) bool { return c.inbound })
	lanes := slices.Collect(maps.Values(n.lanes))
	n.startLocked(&n.farewells, func() {
		n.cfg.Wake()
		strangers := n.tellStrangers(lanes)
		for _, c := range inbound {
			c.Write(last)
		}
		strangers.Wait()
	})
}

// tellStrangers tells ranks to which this rank has no connection, but which wait for it or pass the news on: the
// coordinators of its lanes, and the members of lanes that it coordinates. It returns at once. The goroutines that it
// starts have ended by lastBy.
func (n *Network) tellStrangers(lanes []*lane) (dials *sync.WaitGroup) {
	dials = new(sync.WaitGroup)
	told := make(map[int]bool)
	for _, l := range lanes {
		members := []int{0}
		if l.me == 0 {
			members = n.unheard(l)
		}
		for _, m := range members {
			rank := l.members[m]
			if told[rank] || n.peers[rank].left.Load() || !l.controlOut[m].connectsHere() {
				continue // its writer tells it
			}
			told[rank] = true
			guard.In(dials, "the telling of an abort", func(error) {}, func() { l.tellAbort(m) })
		}
	}
	return dials
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

// tellAbort tells a member of the abort, over a new connection.
func (l *lane) tellAbort(to int) {
	n := l.net
	ctx, cancel := context.WithDeadline(context.Background(), n.lastBy)
	defer cancel()
	rank := l.members[to]
	first := int(n.peers[rank].route.Load())
	if c, _, err := n.dialer.Try(ctx, rank, first, n.hello(l, rank, control).encode()); err == nil {
		c.SetDeadline(n.lastBy)
		c.Write(n.lastWord)
		c.Close()
	}
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

// farewell writes the last word to a connection that this rank has dialled: the abort if there is one, otherwise a
// goodbye. Only the writer of the connection may call it, between two messages.
func (n *Network) farewell(c *conn, sequence uint32) {
	word := goodbye()
	if n.isAborted() {
		word = slices.Clone(n.lastWord)
	}
	binary.LittleEndian.PutUint32(word[4:], sequence)
	c.Write(word)
	c.CloseWrite()
}

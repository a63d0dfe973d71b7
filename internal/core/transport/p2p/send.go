package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// outbox sends to one receiver.
type outbox struct {
	m  *Endpoint
	to int
	// turn holds a token while a goroutine writes. The goroutine that has put it there owns the fields up to mu.
	turn   chan struct{}
	conn   *link.Conn // nil until the first Send
	route  int        // the index of the address that worked last
	header [headerSize]byte
	parts  [2][]byte
	vector net.Buffers

	mu  sync.Mutex
	err error // why nothing can be sent any more
}

func (o *outbox) init(m *Endpoint, to int) { o.m, o.to, o.turn = m, to, make(chan struct{}, 1) }

// Send sends p to rank `to`, which may be this one. The label goes with the message; it plays no part in matching.
//   - Send returns when p may be reused: when the message is under way, not when it has been received.
//   - It blocks until a connection is made (at most Config.Timeout), and while the receiver keeps too many bytes.
//   - If ctx ends when part of the message has been sent, Send returns ctx's error, and the message arrives
//     nevertheless.
func (m *Endpoint) Send(ctx context.Context, to int, tag uint32, label uint16, p []byte) error {
	err := m.enter(ctx, to)
	if err == nil {
		o := &m.outs[to]
		select {
		case o.turn <- struct{}{}:
			var busy bool
			if busy, err = o.send(ctx, tag, label, p); !busy {
				<-o.turn
			}
		case <-ctx.Done():
			err = ctx.Err()
		case <-m.ended:
			err = m.err()
		}
	}
	if err == nil {
		return nil
	}
	if cause := m.err(); cause != nil {
		return cause
	}
	return fmt.Errorf("send with tag %d to rank %d: %w", tag, to, err)
}

// send sends one message. The caller has the turn, and gives it back unless busy is true. Then another goroutine writes
// the rest of the message, and gives the turn back.
func (o *outbox) send(ctx context.Context, tag uint32, label uint16, p []byte) (busy bool, err error) {
	if o.to == o.m.cfg.Rank {
		return false, o.m.boxes[o.to].put(ctx, tag, label, p)
	}
	if err := o.connect(ctx); err != nil {
		return false, err
	}
	putHeader(o.header[:], kindMessage, tag, label, len(p))
	o.parts[0], o.parts[1] = o.header[:], p
	o.vector = o.parts[:]
	defer func() { o.parts[1] = nil }()
	switch err := o.write(ctx); {
	case err == nil:
		return false, nil
	case ctx.Err() == nil || !errors.Is(err, os.ErrDeadlineExceeded) || o.m.err() != nil:
		return false, o.fail(lost(o.to, o.conn, err))
	}
	rest := slices.Concat(o.vector...)
	if len(rest) == headerSize+len(p) {
		return false, ctx.Err()
	}
	busy = o.m.start(func() {
		if _, err := o.conn.Write(rest); err != nil {
			o.fail(lost(o.to, o.conn, err))
		}
		<-o.turn
	})
	if !busy {
		o.fail(ErrClosed)
	}
	return busy, ctx.Err()
}

// write writes vector until ctx ends.
func (o *outbox) write(ctx context.Context) error {
	if ctx.Done() == nil {
		_, err := o.vector.WriteTo(o.conn.Stream) // the socket itself, which has writev
		return err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		o.conn.SetWriteDeadline(past)
		close(interrupted)
	})
	_, err := o.vector.WriteTo(o.conn.Stream)
	if !stop() {
		<-interrupted
		if cause := o.m.resume(o.conn.SetWriteDeadline); cause != nil && err != nil {
			return cause
		}
	}
	return err
}

// connect makes the connection if there is none. The caller has the turn.
func (o *outbox) connect(ctx context.Context) error {
	if err := o.failure(); err != nil || o.conn != nil {
		return err
	}
	m := o.m
	dial, cancel := context.WithTimeout(m.ctx, m.cfg.Timeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	c, route, err := m.dialer.Dial(dial, o.to, o.route, m.hello(o.to), o.gone)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, new(*Left)):
		return err
	case dial.Err() != nil:
		return fmt.Errorf("connect: %w (after %v)", err, m.cfg.Timeout)
	default:
		return fmt.Errorf("connect: %w", err)
	}
	if !m.register(c, o.to) || !m.start(func() { o.watch(c) }) {
		m.drop(c)
		return m.err()
	}
	o.conn, o.route = c, route
	return nil
}

// watch reads the direction without messages, until the connection ends.
func (o *outbox) watch(c *link.Conn) {
	var head [headerSize]byte
	_, err := io.ReadFull(c, head[:])
	if err == nil {
		if _, err = parseHeader(head[:]); err == nil {
			err = errors.New("a message in the silent direction")
		}
	}
	if o.m.err() != nil {
		return // Close says goodbye, and closes the connection
	}
	err = o.fail(lost(o.to, c, err))
	o.m.drop(c)
	o.m.boxes[o.to].orphan(err)
}

// fail latches the reason why nothing can be sent any more, and returns the first one.
func (o *outbox) fail(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return o.err
}

func (o *outbox) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// close waits for the goroutine that writes, and says goodbye if the Endpoint ends in good order.
func (o *outbox) close(orderly bool) {
	o.turn <- struct{}{}
	if o.conn != nil && orderly && o.failure() == nil {
		sayGoodbye(o.conn)
	}
}

func sayGoodbye(c *link.Conn) {
	var head [headerSize]byte
	putHeader(head[:], kindGoodbye, 0, 0, 0)
	c.SetWriteDeadline(time.Now().Add(farewellTimeout))
	c.Write(head[:])
	c.CloseWrite()
}

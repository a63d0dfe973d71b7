// Package p2p sends tagged messages between any two ranks, outside of the order of any lane, as MPI_Send and MPI_Recv
// do. Messages of one sender, receiver and tag arrive in the order in which they were sent; a receive names the sender
// and the tag, or only the tag. Calls block, and are safe on any goroutine.
//
// Every ordered pair of ranks that communicates has a connection of its own. The sender makes it when it first sends.
// At the other end one goroutine reads it:
//
//	Send ══ socket ══▶ box.run ──▶ the buffer of a waiting Recv
//	                      └─────▶ kept until a Recv asks for it
//
// The box keeps messages that nobody waits for in memory, up to MaxKept bytes for each sender. Beyond that it stops
// reading the connection until a Recv takes a kept message, or asks for the next message on the connection. So the
// sender blocks at last, and later messages of other tags wait, too. Two ranks that both send more than MaxKept bytes
// before they receive may wait for each other for ever, as in MPI.
//
// When a rank dies, its connections show it, and calls that concern the rank fail.
// Kept messages of the dead rank can still be received. A rank without a connection
// to it learns of the death when the world aborts (Config.Err, Abort).
//
// A rank that leaves in good order says goodbye on its connections. Messages that it has sent still arrive, then calls
// that concern it fail with a Left. A rank without a connection to it learns from Config.Left that somebody has left,
// and then makes a connection to each rank for whose messages it waits, to see whether that one is still there.
//
// # Who has a buffer, and a connection
//
// The states of a Recv's buffer, and the events that change them (waiter.stage, under the box's lock):
//
//	WAITING ── a message comes: the reader takes the buffer ──▶ FILLING ── it is full ──▶ ENDED
//	   │                                                          │ │                       ▲
//	   │                                                          │ └─ the connection ends ─┤
//	   │                               ctx, or the Endpoint, ends ▼                         │
//	   │                       INTERRUPTED: the reader keeps the message in memory instead ─┤
//	   └── the buffer is too short, ctx ends, the sender is lost ───────────────────────────┘
//
//	WAITING      nobody touches the buffer
//	FILLING      the box's reader alone writes it
//	INTERRUPTED  the reader may still write it; Recv waits for ENDED, and a read deadline in the past
//	             makes that soon
//	ENDED        it is the caller's again
//
// The reading half of a connection belongs to box.run from accept to end. The writing half belongs to the goroutine
// that has put the token into outbox.turn:
//   - a Send;
//   - after a Send whose ctx ended within a message, the goroutine that writes the rest from a copy;
//   - Close.
//
// outbox.watch reads the direction in which no messages travel, to notice the connection's end.
//
// These may block:
//   - Send, Recv and RecvAny: until their ctx or the Endpoint ends;
//   - box.run: until there is room;
//   - box.look: until a Send to that rank has ended, and a connection is made (at most Config.Timeout);
//   - Close: at most farewellTimeout on each connection.
package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// MaxKept is the most memory, in bytes, for messages of one sender that nobody has asked for. Each message counts for
// messageCost more than its length.
const (
	MaxKept     = 4 << 20
	messageCost = 64
)

// errPoll is the time between two calls of Config.Err, and of Config.Left, while the Endpoint is in use.
const errPoll = 50 * time.Millisecond

// farewellTimeout bounds the time for telling the others that this rank closes.
const farewellTimeout = 200 * time.Millisecond

// ErrClosed is the error of calls on an Endpoint that has been closed.
var ErrClosed = errors.New("p2p: this rank has closed its endpoint")

// ErrTooLong is wrapped by the error of a Recv whose buffer is too small, a TooLong.
var ErrTooLong = errors.New("the message is longer than the buffer")

// TooLong is a message for which a Recv's buffer was too small. The Endpoint keeps it, for a Recv with a larger buffer.
type TooLong struct {
	From   int
	Length int // bytes
	Label  uint16
	Room   int // bytes of the buffer
}

func (e *TooLong) Error() string {
	return fmt.Sprintf("%v: it has %d bytes, the buffer %d", ErrTooLong, e.Length, e.Room)
}

func (e *TooLong) Unwrap() error { return ErrTooLong }

// Config describes one rank's attachment to one generation of the world.
type Config struct {
	Rank, Size int
	// Key is the job's secret, known to all ranks and to nobody else.
	Key []byte
	// Generation tells the worlds of one job apart.
	Generation uint64
	// Listener is a TCP listener or a link.Listener, at the address that the other ranks know. New owns it, also if it
	// returns an error.
	Listener net.Listener
	// Addrs lists the host:port pairs at which a rank may be reached. It is called on any goroutine.
	Addrs func(rank int) []string
	// Knocks gets the connections that do not prove that they belong to the job. Optional.
	Knocks *auth.Knocks
	// TLS, if not nil, makes all connections use TLS, with these certificates. It is set on all ranks or on none.
	TLS *auth.Certificates
	// Timeout bounds the time to make a connection. Default 30 s.
	Timeout time.Duration
	// Idle is how often the kernels at both ends of an idle connection talk. 0: never.
	Idle time.Duration
	// TrackFD is called with each descriptor when it opens and before it closes. Optional. It must be safe for
	// concurrent calls.
	TrackFD func(fd int, open bool)
	// Err returns the cause once the world has been aborted. Then the Endpoint aborts, too, within errPoll. Optional.
	// It must be safe for concurrent calls.
	Err func() error
	// Left reports that a rank of the world, whichever, has left in good order. The Endpoint notices within errPoll.
	// Optional. It must be safe for concurrent calls.
	Left func() bool
}

func (c *Config) check() error {
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.TrackFD == nil {
		c.TrackFD = func(int, bool) {}
	}
	if c.Err == nil {
		c.Err = func() error { return nil }
	}
	if c.Left == nil {
		c.Left = func() bool { return false }
	}
	switch err := link.Check(c.Listener); {
	case err != nil:
		return fmt.Errorf("p2p: %w", err)
	case c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("p2p: rank %d of %d", c.Rank, c.Size)
	case len(c.Key) == 0:
		return errors.New("p2p: no key")
	case c.Addrs == nil && c.Size > 1:
		return errors.New("p2p: no addresses")
	case c.Timeout < 0:
		return fmt.Errorf("p2p: time-out %v", c.Timeout)
	}
	return nil
}

// Endpoint is a rank's end of all its messages.
type Endpoint struct {
	cfg      Config
	acceptor *link.Acceptor
	dialer   *link.Dialer
	boxes    []box    // by sender
	outs     []outbox // by receiver

	ctx        context.Context // ends with the Endpoint
	cancel     context.CancelFunc
	ended      chan struct{} // closed when cause is set
	parting    chan struct{} // closed when Config.Left has returned true
	polling    sync.Once
	goroutines sync.WaitGroup
	finished   chan struct{} // closed when Close is done

	mu     sync.Mutex
	cause  error              // the first of Abort and Close
	closed bool               // no goroutine starts any more
	conns  map[*link.Conn]int // with the rank at the other end

	arrived chan struct{} // see arrivals; nil if nobody waits. Guarded by mu
	served  atomic.Uint32 // counts RecvAny's looks: the next one starts at that box
}

// New starts to accept connections. It does not block.
func New(c Config) (*Endpoint, error) {
	if err := c.check(); err != nil {
		if c.Listener != nil {
			c.Listener.Close()
		}
		return nil, err
	}
	m := &Endpoint{
		cfg:      c,
		dialer:   &link.Dialer{Key: c.Key, Addrs: c.Addrs, Idle: c.Idle, Track: c.TrackFD},
		boxes:    make([]box, c.Size),
		outs:     make([]outbox, c.Size),
		ended:    make(chan struct{}),
		parting:  make(chan struct{}),
		finished: make(chan struct{}),
		conns:    make(map[*link.Conn]int),
	}
	if c.TLS != nil {
		m.dialer.Seal = &link.Seal{Certificates: *c.TLS}
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	for r := range c.Size {
		m.boxes[r].init(m, r)
		m.outs[r].init(m, r)
	}
	m.acceptor = &link.Acceptor{
		Listener: c.Listener, Key: c.Key, Idle: c.Idle, Track: c.TrackFD, Limit: 64 + 2*c.Size, Knocks: c.Knocks,
		Seal: m.dialer.Seal, Go: m.start, Admit: m.admit, Take: m.take,
	}
	m.acceptor.Start(func(err error) { m.Abort(fmt.Errorf("p2p: rank %d: %w", c.Rank, err)) })
	return m, nil
}

// Abort makes every blocked and every later call fail with cause, unless it has failed for another cause before. It
// tells no other rank.
func (m *Endpoint) Abort(cause error) {
	if cause == nil {
		cause = errors.New("p2p: aborted without a cause")
	}
	m.end(cause)
}

// past is a deadline that interrupts the goroutine which reads or writes a connection.
var past = time.Unix(1, 0)

// end latches the cause. It returns false if there is one already.
func (m *Endpoint) end(cause error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cause != nil {
		return false
	}
	m.cause = cause
	close(m.ended)
	m.cancel()
	for c := range m.conns {
		c.SetDeadline(past)
	}
	return true
}

// err is the cause, nil while the Endpoint works.
func (m *Endpoint) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cause
}

// Close ends all calls with ErrClosed and releases everything. When Close has returned, nothing touches the buffers of
// calls. Messages that Send has accepted still arrive. Closing twice is allowed.
func (m *Endpoint) Close() error {
	orderly := m.end(ErrClosed)
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		<-m.finished
		return nil
	}
	m.closed = true
	m.mu.Unlock()
	m.acceptor.Close(0)
	for r := range m.outs {
		m.outs[r].close(orderly)
		m.boxes[r].close(orderly)
	}
	m.goroutines.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		c.Close()
	}
	m.dialer.Seal.Wait(time.Second)
	close(m.finished)
	return nil
}

// enter begins a call that concerns a rank.
func (m *Endpoint) enter(ctx context.Context, rank int) error {
	if rank < 0 || rank >= m.cfg.Size {
		return fmt.Errorf("rank %d of %d", rank, m.cfg.Size)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.cfg.Err(); err != nil {
		m.Abort(err)
	}
	m.polling.Do(func() { m.start(m.poll) })
	return m.err()
}

// poll notices that the world has been aborted, and that a rank has left.
func (m *Endpoint) poll() {
	t := time.NewTicker(errPoll)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := m.cfg.Err(); err != nil {
				m.Abort(err)
			}
			if !m.isParting() && m.cfg.Left() {
				close(m.parting)
			}
		case <-m.ended:
			return
		}
	}
}

// start runs f on a goroutine that Close waits for; false if Close has begun.
func (m *Endpoint) start(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	guard.In(&m.goroutines, "the messages between ranks", m.Abort, f)
	return true
}

// register adds a connection to those that end interrupts. It returns false if the Endpoint has ended.
func (m *Endpoint) register(c *link.Conn, rank int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cause != nil {
		return false
	}
	m.conns[c] = rank
	return true
}

func (m *Endpoint) drop(c *link.Conn) {
	m.mu.Lock()
	delete(m.conns, c)
	m.mu.Unlock()
	c.Close()
}

// resume removes the deadline of an interrupted reader or writer, unless the Endpoint has ended. set is a method of its
// connection.
func (m *Endpoint) resume(set func(time.Time) error) error {
	set(time.Time{})
	// end latches the cause before it sets deadlines: if set has undone one of these, err returns the cause.
	return m.err()
}

// Package tcp is the transport between hosts. Every (lane, stream, sender,
// receiver) has a connection of its own, made by the sender when it first has
// something to say: stream control carries the frames of the lane's board, data
// those of its Comm. Nothing is multiplexed, so the kernel does the flow control
// and no lane ever waits for another.
//
//	driver ── Send, Sent ──▶ outStream ══ socket ══▶ inStream ◀── Recv, Received ── driver
//	board ── frame ──▶ controlOut ══ socket ══▶ controlIn ──▶ treeboard.Receive ◀── driver, keeper
//
// The drivers move the data themselves, whenever they poll. The runtime's poller
// knows nothing of the data connections, and the kernel wakes a sleeping driver
// (bell). A goroutine handles everything else on a connection (the other end leaves
// or breaks, the lane closes, the network aborts): it takes the connection back from
// the driver for good (conn).
//
// The goroutine that makes a board's frame writes it; another one goes on where the
// socket has no room. At the other end the driver takes the frame when it polls, or
// the keeper, in a rank that does not drive. The receiver sends nothing back except
// a goodbye or an abort at the end. So an abort reaches a peer even when the data is
// stuck.
//
// A connection is proved (package link) before anything else is read from it.
// One that ends without goodbye aborts the network after a moment in which a
// better cause may come.
package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/auth"
	"github.com/gorovod/gorovod/internal/guard"
	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/internal/transport/board"
	"github.com/gorovod/gorovod/internal/transport/tcp/link"
	"github.com/gorovod/gorovod/internal/transport/treeboard"
)

// Config describes one rank's attachment to one generation of the world.
type Config struct {
	Rank, Size int
	// Key is the job's secret, known to all ranks and to nobody else.
	Key []byte
	// Generation tells the worlds of one job apart.
	Generation uint64
	// Listener is a TCP listener or a link.Listener, the one that the other ranks
	// know. New takes it over, also when it returns an error.
	Listener net.Listener
	// Addrs lists the host:port pairs under which a rank may be reached. Called on
	// any goroutine.
	Addrs func(rank int) []string
	// Paths says over how many of the first addresses of a rank the data streams to it
	// are spread. Optional: over one.
	Paths func(rank int) int
	// Reached is told by which of its addresses a rank was reached first. Optional; it
	// must not block.
	Reached func(rank, route int)
	// Describe names a rank for people. Optional.
	Describe func(rank int) string
	// Knocks is told of connections that do not prove themselves. Optional.
	Knocks *auth.Knocks
	// TLS has all connections speak TLS, the same on all ranks.
	TLS bool
	// Timeout bounds the making of a connection. Default 30 s.
	Timeout time.Duration
	// Cards is the number of cache cards of each lane's board. Default 1024.
	Cards int
	// Streams is the number of connections that carry the data from a rank to
	// another, the same on all ranks. Default 1, at most MaxStreams.
	Streams int
	// Combine makes what merges the Requests of the given members of a lane on their
	// way to its coordinator. Nil: they go as they are.
	Combine func(members []int) transport.Combiner
	// Grace is how long a lost connection waits for a better cause. Default 1 s.
	Grace time.Duration
	// Bell is rung for this rank's driver, also by others than this network; nil: there
	// are none. Where it is a transport.Alarm, the driver can sleep on it and on
	// sockets at once. The driver uses Network.Bell in any case.
	Bell transport.Bell
	// Wake is called after frames have come for a lane's board, and after an
	// abort, for a driver that may not be looking. It is called on goroutines of
	// the network and must not block. Optional.
	Wake func()
	// Lost is called when a connection to a rank has broken, on a goroutine of its
	// own, once for a rank. It may find out why and call Abort with that. Close
	// waits for it to return. Optional.
	Lost func(rank int, err error)
	// TrackFD is told of each descriptor when it opens and before it closes.
	// Optional; safe for concurrent calls.
	TrackFD func(fd int, open bool)
}

// MaxStreams bounds Config.Streams.
const MaxStreams = 64

func (c *Config) check() error {
	setDefault(&c.Timeout, 30*time.Second)
	setDefault(&c.Cards, 1024)
	setDefault(&c.Grace, time.Second)
	setDefault(&c.Streams, 1)
	setDefaultFunc(&c.Wake, func() {})
	setDefaultFunc(&c.Lost, func(int, error) {})
	setDefaultFunc(&c.TrackFD, func(int, bool) {})
	if c.Paths == nil {
		c.Paths = func(int) int { return 1 }
	}
	if c.Describe == nil {
		c.Describe = func(rank int) string { return fmt.Sprintf("rank %d", rank) }
	}
	if c.Reached == nil {
		c.Reached = func(int, int) {}
	}
	switch err := link.Check(c.Listener); {
	case err != nil:
		return fmt.Errorf("tcp: %w", err)
	case c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("tcp: rank %d of %d", c.Rank, c.Size)
	case len(c.Key) == 0:
		return errors.New("tcp: no key")
	case c.Addrs == nil && c.Size > 1:
		return errors.New("tcp: no addresses")
	case c.Streams < 1 || c.Streams > MaxStreams:
		return fmt.Errorf("tcp: %d streams", c.Streams)
	case c.Timeout < 0 || c.Grace < 0 || c.Cards < 0:
		return fmt.Errorf("tcp: time-out %v, grace %v, %d cards", c.Timeout, c.Grace, c.Cards)
	}
	return nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func setDefaultFunc[F ~func() | ~func(int, error) | ~func(int, bool)](f *F, d F) {
	if *f == nil {
		*f = d
	}
}

// Network is a transport.Network over TCP.
type Network struct {
	cfg      Config
	acceptor *link.Acceptor
	dialer   *link.Dialer
	seal     *link.Seal // nil without TLS
	bell     transport.Bell
	// Nil where connections are not lent to the driver, see conn.
	edges  *edges
	keeper *keeper
	// closeAlarm closes the alarm that is this network's own; nil if there is none.
	closeAlarm func(track func(fd int, open bool))

	// ctx ends with the network's readiness to make connections: when it is
	// aborted or closed.
	ctx    context.Context
	cancel context.CancelFunc
	// lastCtx is the same for who must be heard: Close ends it later than ctx.
	lastCtx    context.Context
	lastCancel context.CancelFunc

	cause   atomic.Pointer[causeOf]
	aborted chan struct{} // closed with cause set
	leaving chan struct{} // closed by Close, unless aborted before
	// lastWord is the abort message, set under mu before aborted is closed.
	lastWord []byte

	peers []peer // by rank

	goroutines sync.WaitGroup
	farewells  sync.WaitGroup // those goroutines that may have to tell a peer of an abort

	mu       sync.Mutex
	ended    bool // Close has been called: no goroutine starts any more
	finished chan struct{}
	lanes    map[int]*lane
	former   map[int]uint32     // by id: the last incarnation that has been closed
	conns    map[*conn]struct{} // proved ones
	early    map[hello]*conn    // accepted for lanes that are not open yet
}

// peer is what is known of another rank.
type peer struct {
	left    atomic.Bool  // it has said goodbye
	lost    atomic.Bool  // a connection to it has broken
	route   atomic.Int32 // which of its addresses worked last
	spread  atomic.Int32 // from which of them on the data streams are spread, plus 1; 0: none was made
	reached atomic.Bool  // Config.Reached has been told
}

type causeOf struct{ err error }

var _ transport.Network = (*Network)(nil)

// New starts to accept connections. It does not block.
func New(c Config) (*Network, error) {
	if err := c.check(); err != nil {
		if c.Listener != nil {
			c.Listener.Close()
		}
		return nil, err
	}
	n := &Network{
		cfg:      c,
		dialer:   &link.Dialer{Key: c.Key, Addrs: c.Addrs, Track: c.TrackFD},
		aborted:  make(chan struct{}),
		leaving:  make(chan struct{}),
		finished: make(chan struct{}),
		peers:    make([]peer, c.Size),
		lanes:    make(map[int]*lane),
		former:   make(map[int]uint32),
		conns:    make(map[*conn]struct{}),
		early:    make(map[hello]*conn),
	}
	if err := n.openBell(); err != nil {
		c.Listener.Close()
		return nil, fmt.Errorf("tcp: %w", err)
	}
	if c.TLS {
		n.seal = &link.Seal{}
	}
	n.dialer.Seal = n.seal
	n.lastCtx, n.lastCancel = context.WithCancel(context.Background())
	n.ctx, n.cancel = context.WithCancel(n.lastCtx)
	n.acceptor = &link.Acceptor{
		Listener: c.Listener, Key: c.Key, Track: c.TrackFD, Limit: maxUnproven(c.Size), Knocks: c.Knocks, Seal: n.seal,
		Go:    func(f func()) bool { return n.start(&n.goroutines, f) },
		Admit: n.judge,
		Take:  n.take,
	}
	if n.keeper != nil {
		n.start(&n.goroutines, n.keeper.run)
	}
	n.acceptor.Start(func(err error) { n.Abort(fmt.Errorf("tcp: rank %d: %w", c.Rank, err)) })
	return n, nil
}

// Name implements transport.Network.
func (n *Network) Name() string { return "tcp" }

// Bell implements transport.Network.
func (n *Network) Bell() transport.Bell { return n.bell }

// OpenLane implements transport.Network. It does not wait for the other members.
func (n *Network) OpenLane(id int, incarnation uint32, members []int) (*transport.Lane, error) {
	return n.OpenLaneOn(id, incarnation, members, Local{})
}

// Local is what the members of a lane that are on one host share.
type Local struct {
	// Hosts are the lane's members by host, as in transport.Lane. Nil: each is a host
	// of its own.
	Hosts [][]int
	// Up and Down are the boards of this member's host, see treeboard.Config. They may
	// be nil where it is alone. Nothing of the network touches them after
	// CloseLane or Close.
	Up, Down *board.Board
	// Ring wakes the driver of the i-th member on this host.
	Ring func(i int)
}

// alone are n hosts of one member each.
func alone(n int) [][]int {
	hosts := make([][]int, n)
	for m := range hosts {
		hosts[m] = []int{m}
	}
	return hosts
}

// OpenLaneOn is OpenLane for a lane some of whose members share memory.
func (n *Network) OpenLaneOn(id int, incarnation uint32, members []int, local Local) (*transport.Lane, error) {
	if err := n.Err(); err != nil {
		return nil, fmt.Errorf("open lane %d: %w", id, err)
	}
	for i, m := range members {
		if m < 0 || m >= n.cfg.Size || i > 0 && m <= members[i-1] {
			return nil, fmt.Errorf("open lane %d: members %v are not ascending ranks of a world of %d", id, members,
				n.cfg.Size)
		}
	}
	me, ok := slices.BinarySearch(members, n.cfg.Rank)
	if !ok {
		return nil, fmt.Errorf("open lane %d: rank %d is not among the members %v", id, n.cfg.Rank, members)
	}
	l := newLane(n, id, incarnation, members, me)
	if local.Hosts == nil {
		local.Hosts = alone(len(members))
	}
	b, err := treeboard.New(treeboard.Config{
		Member: me, Hosts: local.Hosts, Cards: n.cfg.Cards, Up: local.Up, Down: local.Down,
		Pipe: (*lanePipe)(l), Combine: n.cfg.Combine, Ring: n.bell.Ring, RingLocal: local.Ring, Abort: n.Abort,
	})
	if err != nil {
		return nil, fmt.Errorf("open lane %d: %w", id, err)
	}
	l.board = b
	polled := transport.Board(b)
	for m := range members {
		if b.Linked(m) {
			l.linked = append(l.linked, m)
			polled = &polledBoard{Board: b, lane: l}
		}
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return nil, fmt.Errorf("open lane %d: rank %d has closed its network", id, n.cfg.Rank)
	}
	if n.lanes[id] != nil {
		return nil, fmt.Errorf("open lane %d: rank %d has opened it already", id, n.cfg.Rank)
	}
	if last, ok := n.former[id]; ok && incarnation <= last {
		return nil, fmt.Errorf("open lane %d: incarnation %d after %d has been closed", id, incarnation, last)
	}
	n.lanes[id] = l
	for h, c := range n.early {
		if int(h.lane) == id && h.incarnation <= incarnation {
			delete(n.early, h)
			n.place(h, c)
		}
	}
	return &transport.Lane{Board: polled, Comm: (*comm)(l)}, nil
}

// start runs f on a goroutine that Close waits for; false if it is too late for
// that. extra is nil or another group that f belongs to.
func (n *Network) start(group *sync.WaitGroup, f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.startLocked(group, f)
}

func (n *Network) startLocked(group *sync.WaitGroup, f func()) bool {
	if n.ended {
		return false
	}
	guard.In(group, "the connections between ranks", n.Abort, f)
	return true
}

// ending reports that the network has been aborted or is being closed, so that
// what goes wrong with a connection is no news.
func (n *Network) ending() bool { return n.isAborted() || isClosed(n.leaving) }

// isAborted reports an abort of which lastWord can be told.
func (n *Network) isAborted() bool { return isClosed(n.aborted) }

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

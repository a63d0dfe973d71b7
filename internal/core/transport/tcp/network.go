package tcp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
	"github.com/gorovod/gorovod/internal/core/transport/treeboard"
)

// Network is a transport.Network over TCP. Its states, and the fields that say which it is:
//
//	          Abort, or an abort of another rank              Close
//	WORKING ──────────────────────────────────────▶ ABORTED ──────────┐
//	   │                                         cause, aborted        ▼
//	   │         Close                                              CLOSING ─────────▶ FINISHED
//	   └─────────────────────────────────────────▶ LEAVING ──────▶   ended    all is    finished
//	                                               leaving                    quiet
//
// ABORTED: it makes and lends no more connections, and tells the other ranks lastWord. LEAVING: the same, with a
// goodbye, but for closeLinger (lastCtx) it still connects to a rank for which it has frames. CLOSING: it starts no
// more goroutines.
type Network struct {
	cfg      Config
	acceptor *link.Acceptor
	dialer   *link.Dialer
	seal     *link.Seal // nil without TLS
	bell     transport.Bell
	// Nil if connections are not lent to the driver.
	edges  *edges
	keeper *keeper
	// closeAlarm closes the network's own alarm; nil if it has none.
	closeAlarm func(track func(fd int, open bool))

	// ctx ends when the network makes no more connections: when it is aborted or closed.
	ctx    context.Context
	cancel context.CancelFunc
	// lastCtx is the same for the last frames of a log: Close ends it later than ctx.
	lastCtx    context.Context
	lastCancel context.CancelFunc

	cause   atomic.Pointer[causeOf]
	aborted chan struct{} // closed with cause set
	leaving chan struct{} // closed by Close, unless aborted before
	// lastWord is the abort message, and lastBy is the deadline for sending it. They are set under mu before aborted is
	// closed.
	lastWord []byte
	lastBy   time.Time

	peers []peer // by rank

	goroutines sync.WaitGroup
	farewells  sync.WaitGroup // the goroutines that may have to tell a peer of an abort

	mu       sync.Mutex
	ended    bool // Close has been called: no goroutine starts any more
	finished chan struct{}
	lanes    map[int]*lane
	former   map[int]uint32     // by id: the last incarnation that has been closed
	conns    map[*conn]struct{} // proved ones
	early    map[hello]*conn    // accepted for lanes that are not open yet
	local    []netip.Addr       // this host's ends of the proved ones, each once
}

// peer is this rank's knowledge of another rank.
type peer struct {
	left    atomic.Bool  // it has said goodbye
	lost    atomic.Bool  // a connection to it has broken
	route   atomic.Int32 // which of its addresses worked last
	spread  atomic.Int32 // 1 + the index of the address of the first data stream, see start; 0: none yet
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
		dialer:   &link.Dialer{Key: c.Key, Addrs: c.Addrs, Idle: c.Idle, Track: c.TrackFD},
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
	if c.TLS != nil {
		n.seal = &link.Seal{Certificates: *c.TLS}
	}
	n.dialer.Seal = n.seal
	n.lastCtx, n.lastCancel = context.WithCancel(context.Background())
	n.ctx, n.cancel = context.WithCancel(n.lastCtx)
	n.acceptor = &link.Acceptor{
		Listener: c.Listener, Key: c.Key, Idle: c.Idle, Track: c.TrackFD, Limit: maxUnproven(c.Size),
		Knocks: c.Knocks, Seal: n.seal,
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

// mostAddresses is how many addresses of this host a network remembers.
const mostAddresses = 8

// Addresses implements transport.Addressed.
func (n *Network) Addresses() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.local)
}

// noteAddressLocked remembers this host's end of a connection.
func (n *Network) noteAddressLocked(at net.Addr) {
	a, ok := at.(*net.TCPAddr)
	if !ok || len(n.local) == mostAddresses {
		return
	}
	if ip := a.AddrPort().Addr().Unmap().WithZone(""); !slices.Contains(n.local, ip) {
		n.local = append(n.local, ip)
	}
}

// Name implements transport.Network.
func (n *Network) Name() string { return "tcp" }

// Bell implements transport.Network.
func (n *Network) Bell() transport.Bell { return n.bell }

// OpenLane implements transport.Network. It does not wait for the other members.
func (n *Network) OpenLane(id int, incarnation uint32, members []int) (*transport.Lane, error) {
	return n.OpenLaneOn(id, incarnation, members, Local{})
}

// Local describes the members of a lane that share memory on one host.
type Local struct {
	// Hosts are the lane's members by host, as in transport.Lane. Nil: each is a host
	// of its own.
	Hosts [][]int
	// Up and Down are the boards of this member's host, see treeboard.Config. They may be nil if this member is alone
	// there. The network does not touch them after CloseLane or Close has returned.
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

// OpenLaneOn is OpenLane for a lane of which some members share memory.
func (n *Network) OpenLaneOn(id int, incarnation uint32, members []int, local Local) (*transport.Lane, error) {
	me, err := n.among(members)
	if err != nil {
		return nil, fmt.Errorf("open lane %d: %w", id, err)
	}
	l := newLane(n, id, incarnation, members, me)
	if local.Hosts == nil {
		local.Hosts = alone(len(members))
	}
	b, err := treeboard.New(treeboard.Config{
		Member: me, Hosts: local.Hosts, Cards: n.cfg.Cards, Early: n.cfg.Early, Up: local.Up, Down: local.Down,
		Pipe: (*lanePipe)(l), Combine: n.cfg.Combine, Ring: n.bell.Ring, RingLocal: local.Ring, Abort: n.Abort,
	})
	if err != nil {
		return nil, fmt.Errorf("open lane %d: %w", id, err)
	}
	l.board = b
	lane := &transport.Lane{Board: b, Coordination: b.Coordination(), Poller: b.Poller(), Comm: (*comm)(l)}
	for m := range members {
		if b.Linked(m) {
			l.linked = append(l.linked, m)
			lane.Poller = &boardPoller{b.Poller(), l}
		}
	}
	if err := n.addLane(l); err != nil {
		return nil, fmt.Errorf("open lane %d: %w", id, err)
	}
	return lane, nil
}

// among returns the index of this rank among the members of a lane that is to be opened.
func (n *Network) among(members []int) (me int, err error) {
	if err := n.Err(); err != nil {
		return 0, err
	}
	for i, m := range members {
		if m < 0 || m >= n.cfg.Size || i > 0 && m <= members[i-1] {
			return 0, fmt.Errorf("members %v are not ascending ranks of a world of %d", members, n.cfg.Size)
		}
	}
	me, ok := slices.BinarySearch(members, n.cfg.Rank)
	if !ok {
		return 0, fmt.Errorf("rank %d is not among the members %v", n.cfg.Rank, members)
	}
	return me, nil
}

// addLane opens the lane for connections, first for the connections that have come early.
func (n *Network) addLane(l *lane) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return fmt.Errorf("rank %d has closed its network", n.cfg.Rank)
	}
	if n.lanes[l.id] != nil {
		return fmt.Errorf("rank %d has opened it already", n.cfg.Rank)
	}
	if last, ok := n.former[l.id]; ok && l.incarnation <= last {
		return fmt.Errorf("incarnation %d after %d has been closed", l.incarnation, last)
	}
	n.lanes[l.id] = l
	for h, c := range n.early {
		if int(h.lane) == l.id && h.incarnation <= l.incarnation {
			delete(n.early, h)
			n.place(h, c)
		}
	}
	return nil
}

// start runs f on a goroutine of the group, for which Close waits. It returns false if Close has been called.
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

// ending reports that the network has been aborted or is being closed. Then a connection that fails is no news.
func (n *Network) ending() bool { return n.isAborted() || isClosed(n.leaving) }

// isAborted reports an abort, with lastWord and lastBy set.
func (n *Network) isAborted() bool { return isClosed(n.aborted) }

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

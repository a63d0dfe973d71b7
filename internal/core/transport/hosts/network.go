// Package hosts is the transport.Network of ranks on several hosts: each host's
// ranks have a segment (package shm), and all ranks TCP among them (package tcp).
//
//	lane's members    Board                Shared              Comm
//	all on one host   in the segment       all                 none
//	on several        a tree of leaders    those of this host  all
//
// The tree's leaders share two boards with the members of their host, in the segment, and send one another frames over
// TCP (package treeboard). One bell serves both networks. An abort of one network becomes an abort of the other, with
// the same cause: at once if this rank aborts, with the next Poll if another rank has told one of the two.
package hosts

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/shm"
	"github.com/gorovod/gorovod/internal/core/transport/tcp"
)

// Config describes one rank's part in one generation of the world.
type Config struct {
	// Hosts are the world's ranks by host, the same on all ranks: each list ascending.
	Hosts [][]int
	// Local is the network of this host's ranks, opened with Alarm and BoardBytes; nil if this rank is alone on its
	// host. New owns it, also if it returns an error.
	Local *shm.Network
	// TCP configures the connections among all ranks. New sets its Bell to Local's. Cards must be set, to the value of
	// Local.
	TCP tcp.Config
}

// Network is a rank's attachment to both networks.
type Network struct {
	hosts []int // by world rank: the number of its host
	rank  int
	cards int
	early int
	local *shm.Network // nil on a host of one rank
	tcp   *tcp.Network
	cause atomic.Pointer[error]
	told  atomic.Bool // both networks know the cause, or tellBoth is telling them

	mu    sync.Mutex
	lanes map[int]parts // the open ones
}

// parts says where a lane has been opened.
type parts struct{ local, tcp bool }

var (
	_ transport.Network = (*Network)(nil)
	_ transport.Poller  = (*Network)(nil)
)

// New starts to accept connections. It does not block.
func New(c Config) (*Network, error) {
	n := &Network{rank: c.TCP.Rank, cards: c.TCP.Cards, early: c.TCP.Early, local: c.Local, lanes: make(map[int]parts)}
	err := n.number(c.Hosts, c.TCP.Size)
	if err == nil {
		if c.Local != nil {
			c.TCP.Bell = c.Local.Bell()
		}
		n.tcp, err = tcp.New(c.TCP)
	} else if c.TCP.Listener != nil {
		c.TCP.Listener.Close()
	}
	if err != nil {
		if c.Local != nil {
			c.Local.Close()
		}
		return nil, fmt.Errorf("networks of %d hosts: %w", len(c.Hosts), err)
	}
	return n, nil
}

// number notes the ranks' hosts.
func (n *Network) number(hosts [][]int, size int) error {
	n.hosts = make([]int, size)
	count := 0
	for h, ranks := range hosts {
		for i, r := range ranks {
			if r < 0 || r >= size || n.hosts[r] != 0 || i > 0 && r <= ranks[i-1] {
				return fmt.Errorf("the hosts %v do not have each of %d ranks once, ascending", hosts, size)
			}
			n.hosts[r] = h + 1
			count++
		}
		if slices.Contains(ranks, n.rank) && (len(ranks) > 1) != (n.local != nil) {
			return fmt.Errorf("rank %d of the hosts %v: a segment %v", n.rank, hosts, n.local != nil)
		}
	}
	if count != size {
		return fmt.Errorf("the hosts %v do not have each of %d ranks", hosts, size)
	}
	return nil
}

// Name implements transport.Network.
func (n *Network) Name() string { return "shm+tcp" }

// Bell implements transport.Network.
func (n *Network) Bell() transport.Bell { return n.tcp.Bell() }

// Err implements transport.Network. It keeps the cause, and tells no other rank.
func (n *Network) Err() error {
	if cause := n.cause.Load(); cause != nil {
		return *cause
	}
	err := n.tcp.Err()
	if err == nil && n.local != nil {
		err = n.local.Err()
	}
	if err == nil {
		return nil
	}
	n.cause.CompareAndSwap(nil, &err)
	return *n.cause.Load()
}

// Poll implements transport.Poller. If another rank has aborted one of the two networks, Poll aborts the other one. An
// abort of either network wakes the driver. Poll is safe on any goroutine, and costs as much as Err.
func (n *Network) Poll() {
	if n.Err() != nil {
		n.tellBoth()
	}
}

// Abort implements transport.Network.
func (n *Network) Abort(cause error) {
	if cause == nil {
		cause = errors.New("aborted without a cause")
	}
	n.cause.CompareAndSwap(nil, &cause)
	n.tellBoth()
}

// tellBoth aborts both networks with n.cause, which is set.
func (n *Network) tellBoth() {
	if n.told.Swap(true) {
		return
	}
	cause := *n.cause.Load()
	if n.local != nil {
		n.local.Abort(cause)
	}
	n.tcp.Abort(cause)
}

// Addresses implements transport.Addressed.
func (n *Network) Addresses() []netip.Addr { return n.tcp.Addresses() }

// Beat implements transport.Pulsed.
func (n *Network) Beat(every time.Duration) []transport.Silence { return n.tcp.Beat(every) }

// Verify implements transport.Verified.
func (n *Network) Verify() error {
	if n.local == nil {
		return nil
	}
	return n.local.Verify()
}

// Rest implements transport.Pulsed.
func (n *Network) Rest() { n.tcp.Rest() }

// Close implements transport.Network. The connections' readers end before the segment is unmapped. If only the segment
// knows of an abort, the connections carry the abort in place of a goodbye.
func (n *Network) Close() error {
	n.Poll()
	err := n.tcp.Close()
	if n.local != nil {
		err = errors.Join(err, n.local.Close())
	}
	return err
}

package tcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/timeout"
)

// dial makes this rank's connection to a member for one stream. It starts the watcher of a control stream. lendOut
// later starts the watcher of a data stream. dial returns nil if the network cannot go on, the lane has been closed, or
// the member has left.
func (l *lane) dial(ctx context.Context, to int, s stream) *conn {
	n, rank := l.net, l.members[to]
	c, err := n.connect(ctx, n.hello(l, rank, s))
	if err != nil {
		if !n.ending() && !isClosed(l.closed) && !n.peers[rank].left.Load() {
			n.Abort(n.cannotConnect(rank, err))
		}
		return nil
	}
	c.lane = l
	if n.register(c) {
		if s == control {
			n.start(&n.goroutines, func() { n.watchSilent(c) })
		}
		return c
	}
	// Close and Abort no longer end this connection, but the last word can still be written.
	c.SetDeadline(time.Now().Add(abortLinger))
	if !n.isAborted() && ctx.Err() == nil {
		return c
	}
	n.farewell(c, 0)
	c.Close()
	return nil
}

// connect dials the rank that h is for, until the time-out. The connection is not
// registered yet.
func (n *Network) connect(ctx context.Context, h hello) (*conn, error) {
	ctx, cancel := timeout.With(ctx, n.cfg.Timeout)
	defer cancel()
	p := &n.peers[h.to]
	first := p.start(h.stream, n.cfg.Paths(int(h.to)))
	raw, route, err := n.dialer.Dial(ctx, int(h.to), first, h.encode(), func(error) error {
		if p.left.Load() {
			return errLeft
		}
		return nil
	})
	switch {
	case err == nil:
		if h.stream <= data {
			p.route.Store(int32(route))
		}
		if !p.reached.Swap(true) {
			n.cfg.Reached(int(h.to), route)
		}
		return n.newConn(raw, int(h.to), h.stream, false), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w (after %v)", err, n.cfg.Timeout)
	}
	return nil, err
}

// errLeft says that the other rank has closed its network.
var errLeft = errors.New("it has closed its network")

// start is the index of the address that a stream tries first: the one that worked last. The data streams take turns
// among the first paths addresses, which are equally good. All of them count from the address that was known when the
// first of them called start; otherwise two neighbours could get the same one.
func (p *peer) start(s stream, paths int) int {
	last := p.route.Load()
	if s < data || paths < 2 || int(last) >= paths {
		return int(last)
	}
	p.spread.CompareAndSwap(0, last+1)
	return (int(p.spread.Load()-1) + int(s-data)) % paths
}

// cannotConnect is the error for a rank that was not reached. If that rank did not answer, the error names a firewall
// as the likely cause, because the rank exists: it has published its addresses.
func (n *Network) cannotConnect(rank int, err error) error {
	advice := ""
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) {
		advice = "; is there a firewall? Each rank must be able to connect to each other one, at ports that the " +
			"kernel gives (net.ipv4.ip_local_port_range); " +
			"gorovod doctor -H looks at every pair of hosts in both directions"
	}
	return fmt.Errorf("%s cannot connect to %s: %w%s", n.cfg.Describe(n.cfg.Rank), n.cfg.Describe(rank), err, advice)
}

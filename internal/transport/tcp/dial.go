package tcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// errLeft says that there is nobody to connect to any more.
var errLeft = errors.New("it has closed its network")

// start is the number of the address with which a stream begins: the one that worked
// last, but the data streams take the equally good ones in turn, which are the first
// paths. They all count from the one that was known when the first of them asked: if
// another has worked since, two neighbours would get the same.
func (p *peer) start(s stream, paths int) int {
	last := p.route.Load()
	if s < data || paths < 2 || int(last) >= paths {
		return int(last)
	}
	p.spread.CompareAndSwap(0, last+1)
	return (int(p.spread.Load()-1) + int(s-data)) % paths
}

// cannotConnect says that a rank was not reached, and, where it did not answer, what may be the cause: it is there, as
// it has told its addresses.
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

// connect dials the rank that h is for, until the time-out. The connection is not
// registered yet.
func (n *Network) connect(ctx context.Context, h hello) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	p := &n.peers[h.to]
	first := p.start(h.stream, n.cfg.Paths(int(h.to)))
	raw, route, err := n.dialer.Dial(ctx, int(h.to), first, h.encode(), func() error {
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

package tcp

import (
	"context"
	"errors"
	"fmt"
)

// errLeft says that there is nobody to connect to any more.
var errLeft = errors.New("it has closed its network")

// connect dials the rank that h is for, until the time-out. The connection is not
// registered yet.
func (n *Network) connect(ctx context.Context, h hello) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	p := &n.peers[h.to]
	first := int(p.route.Load())
	if paths := n.cfg.Paths(int(h.to)); h.stream > data && paths > 1 && first < paths {
		// Further streams go by ways of their own, where there are some.
		first = (first + int(h.stream-data)) % paths
	}
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

package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// dialStagger is the head start that an address of a rank has over the next one.
	dialStagger = 250 * time.Millisecond
	// dialPause is the pause before the addresses are tried again; it doubles up
	// to maxDialPause.
	dialPause    = 20 * time.Millisecond
	maxDialPause = time.Second
)

// errLeft says that there is nobody to connect to any more.
var errLeft = errors.New("it has closed its network")

// connect dials a rank for one stream of a lane. It tries all addresses again
// and again until the time-out, except that a refusal is believed when no address
// gives anything else. The connection is not registered yet.
func (n *Network) connect(ctx context.Context, lane, rank int, s stream) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	h := n.hello(lane, rank, s)
	for pause := dialPause; ; pause = min(2*pause, maxDialPause) {
		if n.peers[rank].left.Load() {
			return nil, errLeft
		}
		c, err := n.dialRank(ctx, rank, h)
		if err == nil || errors.Is(err, errRefused) {
			return c, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (after %v)", err, n.cfg.Timeout)
		}
	}
}

// dialRank races the addresses of a rank, first the one that worked last, and
// returns the first connection that passes the handshake. An error wraps
// errRefused only if every address refused.
func (n *Network) dialRank(ctx context.Context, rank int, h hello) (*conn, error) {
	addrs := n.cfg.Addrs(rank)
	if len(addrs) == 0 {
		return nil, fmt.Errorf("rank %d has no address", rank)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		c     *conn
		route int
		err   error
	}
	results := make(chan result, len(addrs))
	first := int(n.peers[rank].route.Load())
	for i := range addrs {
		route := (first + i) % len(addrs)
		go func() {
			c, err := n.dialAddr(ctx, addrs[route], rank, time.Duration(i)*dialStagger, h)
			results <- result{c, route, err}
		}()
	}
	var won *conn
	var refusals, others []error
	for range addrs {
		r := <-results // all come soon after cancel
		switch {
		case r.err == nil && won == nil:
			if r.err = n.confirm(r.c); r.err == nil {
				won = r.c
				n.peers[rank].route.Store(int32(r.route))
				cancel()
				continue
			}
			r.c.Close()
			others = append(others, r.err)
		case r.err == nil:
			r.c.Close()
		case errors.Is(r.err, errRefused):
			refusals = append(refusals, r.err)
		default:
			others = append(others, r.err)
		}
	}
	switch {
	case won != nil:
		return won, nil
	case len(others) > 0:
		return nil, errors.Join(others...)
	}
	return nil, errors.Join(refusals...)
}

// dialAddr connects to one address after a pause, and runs the handshake.
func (n *Network) dialAddr(ctx context.Context, addr string, rank int, after time.Duration, h hello) (*conn, error) {
	if after > 0 {
		select {
		case <-time.After(after):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := n.newConn(raw.(*net.TCPConn), rank, false)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	err = n.initiate(c, h)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return c, nil
}

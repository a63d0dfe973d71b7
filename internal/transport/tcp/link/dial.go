package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gorovod/gorovod/internal/auth"
)

const (
	// dialStagger is the head start that an address of a rank has over the next one.
	dialStagger = 250 * time.Millisecond
	// dialPause is the pause before the addresses are tried again; it doubles up
	// to maxDialPause.
	dialPause    = 20 * time.Millisecond
	maxDialPause = time.Second
)

// Dialer is the dialling side.
type Dialer struct {
	Key   []byte
	Addrs func(rank int) []string
	// Track is told of each descriptor when it opens and before it closes.
	Track func(fd int, open bool)
}

// Dial tries all addresses of a rank again and again until ctx ends, except that
// a refusal is believed when no address gives anything else. gone, which may be
// nil, is asked before each attempt; its error ends the matter. first is the
// address to begin with, and route the one that worked.
func (d *Dialer) Dial(ctx context.Context, rank, first int, hello []byte, gone func() error) (c *Conn, route int, err error) {
	for pause := dialPause; ; pause = min(2*pause, maxDialPause) {
		if gone != nil {
			if err := gone(); err != nil {
				return nil, 0, err
			}
		}
		c, route, err = d.Try(ctx, rank, first, hello)
		if err == nil || errors.Is(err, ErrRefused) {
			return c, route, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, 0, err
		}
	}
}

// Try races the addresses of a rank, beginning with number first, and returns
// the first connection that passes the handshake, with the number of its address.
// An error wraps ErrRefused only if every address refused.
func (d *Dialer) Try(ctx context.Context, rank, first int, hello []byte) (won *Conn, route int, err error) {
	addrs := d.Addrs(rank)
	if len(addrs) == 0 {
		return nil, 0, fmt.Errorf("rank %d has no address", rank)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		c     *Conn
		route int
		err   error
	}
	results := make(chan result, len(addrs))
	for i := range addrs {
		route := (first + i) % len(addrs)
		go func() {
			c, err := d.dialAddr(ctx, addrs[route], time.Duration(i)*dialStagger, hello)
			results <- result{c, route, err}
		}()
	}
	var refusals, others []error
	for range addrs {
		r := <-results // all come soon after cancel
		switch {
		case r.err == nil && won == nil:
			if r.err = confirm(r.c); r.err == nil {
				won, route = r.c, r.route
				cancel()
				continue
			}
			r.c.Close()
			others = append(others, r.err)
		case r.err == nil:
			r.c.Close()
		case errors.Is(r.err, ErrRefused):
			refusals = append(refusals, r.err)
		default:
			others = append(others, r.err)
		}
	}
	switch {
	case won != nil:
		return won, route, nil
	case len(others) > 0:
		return nil, 0, errors.Join(others...)
	}
	return nil, 0, errors.Join(refusals...)
}

// dialAddr connects to one address after a pause, and runs the handshake.
func (d *Dialer) dialAddr(ctx context.Context, addr string, after time.Duration, hello []byte) (*Conn, error) {
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
	c := newConn(raw.(*net.TCPConn), d.Track)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	err = d.initiate(c, hello)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return c, nil
}

// initiate is the dialler's part of the handshake but for begin.
func (d *Dialer) initiate(c *Conn, hello []byte) error {
	c.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := auth.Initiate(c, d.Key, hello); err != nil {
		if errors.Is(err, auth.ErrProof) || errors.Is(err, auth.ErrForeign) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return err
	}
	var verdict [256]byte
	if _, err := io.ReadFull(c, verdict[:1]); err != nil {
		return fmt.Errorf("read the verdict: %w", err)
	}
	if size := verdict[0]; size > 0 {
		if _, err := io.ReadFull(c, verdict[:size]); err != nil {
			return fmt.Errorf("read the verdict: %w", err)
		}
		return fmt.Errorf("%w: %s", ErrRefused, verdict[:size])
	}
	return nil
}

// confirm chooses a connection on which initiate has succeeded.
func confirm(c *Conn) error {
	if _, err := c.Write([]byte{begin}); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

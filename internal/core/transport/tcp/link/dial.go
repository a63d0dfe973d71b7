package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/reach"
)

const (
	// dialPause is the pause before the addresses are tried again; it doubles up
	// to maxDialPause.
	dialPause    = 20 * time.Millisecond
	maxDialPause = time.Second
)

// Dialer is the dialling side.
type Dialer struct {
	Key   []byte
	Addrs func(rank int) []string
	// Track is called with each descriptor when it opens and before it closes.
	Track func(fd int, open bool)
	// Idle is pulse.Pulse's of all connections.
	Idle time.Duration
	// Seal makes the connections use TLS. Optional. It must be set on both ends or on none.
	Seal *Seal
}

// Dial tries all addresses of a rank again and again until ctx ends. It gives up earlier if every address refuses, or
// if gone, which may be nil, returns an error; it calls gone before each attempt, with the error of the one before (nil
// for the first). first is the index of the address to begin with, and route the index of the address that worked.
func (d *Dialer) Dial(ctx context.Context, rank, first int, hello []byte, gone func(last error) error) (c *Conn,
	route int, err error) {
	for pause := dialPause; ; pause = min(2*pause, maxDialPause) {
		if gone != nil {
			if err := gone(err); err != nil {
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

// Try races the addresses of a rank (reach.Race), beginning with the one at index first, and returns the first
// connection that passes the handshake, with the index of its address. An error wraps ErrRefused only if every address
// refused.
func (d *Dialer) Try(ctx context.Context, rank, first int, hello []byte) (won *Conn, route int, err error) {
	addrs := d.Addrs(rank)
	if len(addrs) == 0 {
		return nil, 0, fmt.Errorf("rank %d has no address at which it could be reached from here", rank)
	}
	won, number, errs := reach.Race(ctx, len(addrs), func(ctx context.Context, i int) (*Conn, error) {
		return d.dialAddr(ctx, addrs[(first+i)%len(addrs)], hello)
	}, func(c *Conn) { c.Close() })
	if number >= 0 {
		c, err := d.confirm(won)
		return c, (first + number) % len(addrs), err
	}
	others := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, ErrRefused) })
	if len(others) > 0 {
		errs = others
	}
	return nil, 0, errors.Join(errs...)
}

// dialAddr connects to one address, and runs the handshake.
func (d *Dialer) dialAddr(ctx context.Context, addr string, hello []byte) (*Conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := newConn(raw.(*net.TCPConn), d.Idle, d.Track)
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

// initiate is the dialler's part of the handshake, up to begin.
func (d *Dialer) initiate(c *Conn, hello []byte) error {
	c.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := auth.Initiate(c, d.Key, hello); err != nil {
		if errors.Is(err, auth.ErrProof) || errors.Is(err, auth.ErrForeign) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return err
	}
	if err := d.Seal.begin(c, d.Key, true); err != nil {
		if errors.Is(err, auth.ErrProof) || errors.Is(err, auth.ErrCertificate) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return err
	}
	var verdict [256]byte
	if _, err := io.ReadFull(c.talk(), verdict[:1]); err != nil {
		return fmt.Errorf("read the verdict: %w", err)
	}
	if size := verdict[0]; size > 0 {
		if _, err := io.ReadFull(c.talk(), verdict[:size]); err != nil {
			return fmt.Errorf("read the verdict: %w", err)
		}
		return fmt.Errorf("%w: %s", ErrRefused, verdict[:size])
	}
	return nil
}

// confirm chooses a connection on which initiate has succeeded. From then on it owns c.
func (d *Dialer) confirm(c *Conn) (*Conn, error) {
	_, err := c.talk().Write([]byte{begin})
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return d.Seal.cover(c)
}

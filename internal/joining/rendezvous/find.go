package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/reach"
)

// ErrNoServer: none of the addresses led to the job's server.
var ErrNoServer = errors.New("no server of this job")

// A crowded server may hang up on a rank before its proof (see auth.Lobby). The rank tries again, with pauses, for
// crowdTime.
const (
	crowdTime  = 5 * time.Second
	crowdPause = 20 * time.Millisecond
)

// found is a connection whose other end has proved that it is the job's server. The server knows nothing of this end
// until finish.
type found struct {
	conn   net.Conn
	addr   string
	finish func() error
}

// find looks for the server at all addresses.
func find(ctx context.Context, addrs []string, key []byte, o Options) (found, error) {
	raw, err := json.Marshal(hello{
		Protocol: o.protocol, Arch: o.Arch,
		Rank: o.Rank, Size: o.Size,
		Host: clip(o.Host, maxHost), PID: o.PID,
		Generation: o.Generation, TLS: o.TLS != nil, Shape: o.shape, Now: time.Now().UnixNano(),
	})
	if err != nil {
		return found{}, err
	}
	if len(addrs) == 0 {
		return found{}, errors.New("there is no address of the launcher")
	}
	for began := time.Now(); ; {
		won, number, errs := reach.Race(ctx, len(addrs), func(ctx context.Context, i int) (found, error) {
			conn, finish, err := sound(ctx, addrs[i], key, raw)
			return found{conn, addrs[i], finish}, err
		}, func(f found) { f.conn.Close() })
		if number >= 0 {
			return won, nil
		}
		err := errors.Join(errs...)
		hungUp := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
		if hungUp && time.Since(began) < crowdTime {
			select {
			case <-time.After(crowdPause):
				continue
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
		}
		return found{}, notFound{err}
	}
}

// notFound is an ErrNoServer with the attempts' errors.
type notFound struct{ error }

func (e notFound) Is(target error) bool { return target == ErrNoServer }
func (e notFound) Unwrap() error        { return e.error }

// sound connects to one address. The other end must prove itself.
func sound(ctx context.Context, addr string, key, hello []byte) (conn net.Conn, finish func() error, err error) {
	conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("the launcher does not answer: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	finish, err = auth.Begin(conn, key, hello)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("prove the launcher at %s: %w", addr, err)
	}
	return conn, finish, nil
}

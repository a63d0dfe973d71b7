// Package elastic is the conversation between a worker of an elastic job and the job's driver: its messages, and the
// worker's end. Package process registers through a Client before each Init; package driver, in the launcher, answers.
//
// A worker keeps one connection to the driver for its whole life, proved by package auth. On it the worker asks for a
// place in the next epoch, and hears about changes of the hosts.
package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/reach"
	"github.com/gorovod/gorovod/internal/elastic/membership"
)

var (
	// ErrLost: the driver is gone. The worker can join nothing more.
	ErrLost = errors.New("the launcher of this elastic job is gone")
	// ErrDismissed: the job has no place for the worker any more. It must end.
	ErrDismissed = errors.New("this worker has left the elastic job")
)

const (
	dialTimeout  = 30 * time.Second
	writeTimeout = 10 * time.Second
	// lostPause delays the news of the driver's end. A program that passes this process's output on to the same
	// launcher also notices the end; without the pause the last output would be lost.
	lostPause = time.Second
)

// keepAlive configures the probes that notice the loss of the driver's host.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Options is the input of Dial.
type Options struct {
	Worker int
	// TLS, if not nil, encrypts everything after the proof, with these certificates.
	TLS *auth.Certificates
	// TrackFD, if set, is called with the connection's descriptor when it is opened and before it is closed, so that a
	// forked child can close its copy.
	TrackFD func(fd int, open bool)
	// Lost, if set, is called once, on a goroutine of the client, when the driver is gone.
	Lost func(error)
}

// Client is a worker's connection to its driver. Its methods are safe on any goroutine, except Register, which has one
// caller at a time.
type Client struct {
	conn  net.Conn
	o     Options
	ended chan struct{} // closed when the connection has ended; err says why

	writing sync.Mutex

	mu      sync.Mutex
	err     error
	closing bool
	number  uint64
	placed  chan Message // capacity 1: the answer to the registration with number
	stamp   int64        // of the newest update since the last place
	update  membership.HostUpdate
	news    chan struct{} // capacity 1: an update has come
}

// Dial connects to the driver at one of addrs, which it tries as rendezvous.Join does. Both ends prove the job's
// secret. Dial blocks at most 30 s.
func Dial(ctx context.Context, addrs []string, key []byte, o Options) (*Client, error) {
	hello, err := json.Marshal(Hello{Protocol: Protocol, Shape: Shape(), Worker: o.Worker, PID: os.Getpid(),
		TLS: o.TLS != nil})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	type sounded struct {
		conn   net.Conn
		finish func() error
	}
	won, number, errs := reach.Race(ctx, len(addrs), func(ctx context.Context, i int) (sounded, error) {
		conn, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", addrs[i])
		if err != nil {
			return sounded{}, err
		}
		stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
		finish, err := auth.Begin(conn, key, hello)
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			conn.Close()
		}
		return sounded{conn, finish}, err
	}, func(s sounded) { s.conn.Close() })
	if number < 0 {
		return nil, fmt.Errorf("find the driver of the elastic job at %v: %w", addrs, errors.Join(errs...))
	}
	conn, err := enter(won.conn, won.finish, key, o.TLS)
	if err != nil {
		won.conn.Close()
		return nil, fmt.Errorf("find the driver of the elastic job at %v: %w", addrs, err)
	}
	c := &Client{conn: conn, o: o, ended: make(chan struct{}), placed: make(chan Message, 1),
		news: make(chan struct{}, 1)}
	c.track(true)
	guard.Go("the connection to the driver", c.end, c.read)
	return c, nil
}

// enter proves this end, and begins TLS if tls is not nil. Use the result instead of conn.
func enter(conn net.Conn, finish func() error, key []byte, tls *auth.Certificates) (net.Conn, error) {
	conn.SetDeadline(time.Now().Add(dialTimeout))
	defer conn.SetDeadline(time.Time{})
	if err := finish(); err != nil {
		return nil, err
	}
	if tls == nil {
		return conn, nil
	}
	return tls.Seal(conn, key, true)
}

// Register asks for a place in the next epoch; r says what the worker has. It blocks until the driver gives a place,
// which may take as long as the job waits for other workers, or until ctx ends. The error is ErrDismissed, ErrLost or
// ctx's.
func (c *Client) Register(ctx context.Context, r membership.Registration) (Assignment, error) {
	c.mu.Lock()
	c.number++
	number := c.number
	select {
	case <-c.placed: // an answer to an earlier registration that was given up
	default:
	}
	c.mu.Unlock()
	if err := c.write(Message{Type: TypeReady, Number: number, Registration: &r}); err != nil {
		return Assignment{}, err
	}
	select {
	case m := <-c.placed:
		return answer(m)
	case <-ctx.Done():
		return Assignment{}, fmt.Errorf("wait for a place in the elastic job: %w", ctx.Err())
	case <-c.ended:
		select {
		case m := <-c.placed: // the answer came before the end
			return answer(m)
		default:
			return Assignment{}, c.cause()
		}
	}
}

func answer(m Message) (Assignment, error) {
	if m.Type == TypeDismiss {
		return Assignment{}, fmt.Errorf("%w: %s", ErrDismissed, m.Text)
	}
	return *m.Assignment, nil
}

// Saved tells the driver that a commit is on the disk. If that fails, the connection has ended.
func (c *Client) Saved(commit int64) { c.write(Message{Type: TypeSaved, Commit: commit}) }

// Updates returns the driver's news of the hosts since the last place, and forgets it; 0 and NoUpdate if there is none.
func (c *Client) Updates() (stamp int64, update membership.HostUpdate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp, update = c.stamp, c.update
	c.stamp, c.update = 0, membership.NoUpdate
	return stamp, update
}

// AwaitUpdates blocks until Updates has news. One goroutine may wait at a time. The error is ErrLost or ctx's.
func (c *Client) AwaitUpdates(ctx context.Context) error {
	for {
		c.mu.Lock()
		there := c.update != membership.NoUpdate
		c.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-c.news:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ended:
			return c.cause()
		}
	}
}

// Err is nil while the connection to the driver lives. Otherwise it wraps ErrLost.
func (c *Client) Err() error {
	select {
	case <-c.ended:
		return c.cause()
	default:
		return nil
	}
}

// Close ends the connection. From then on the driver expects this process to end.
func (c *Client) Close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.end(errors.New("closed"))
}

// read is the goroutine that reads frames until the connection ends.
func (c *Client) read() {
	for {
		m, err := Decode(c.conn)
		if err != nil {
			c.lost(err)
			return
		}
		c.take(m)
	}
}

func (c *Client) take(m Message) {
	switch m.Type {
	case TypePing:
		c.write(Message{Type: TypePong}) // if it fails, the connection has ended
		return
	case TypePlace:
		if m.Assignment == nil {
			c.end(errors.New("the driver gives a place without an assignment"))
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.Type {
	case TypePlace:
		// Earlier updates concern an epoch that is over.
		c.stamp, c.update = 0, membership.NoUpdate
		if m.Number != c.number {
			return
		}
	case TypeUpdate:
		c.stamp = m.Stamp
		c.update |= m.Update
		select {
		case c.news <- struct{}{}:
		default:
		}
		return
	case TypeDismiss:
	default:
		return
	}
	select {
	case c.placed <- m:
	default:
	}
}

func (c *Client) write(m Message) error {
	frame, err := Encode(m)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.Err(); err != nil {
		return err
	}
	c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := c.conn.Write(frame); err != nil {
		c.lost(err)
		return c.cause()
	}
	return nil
}

// lost ends the connection because of an error, after a pause.
func (c *Client) lost(cause error) {
	select {
	case <-c.ended:
	case <-time.After(lostPause):
	}
	c.end(cause)
}

// end closes the connection. Only the first cause counts.
func (c *Client) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = ErrLost
	if !errors.Is(cause, io.EOF) && !errors.Is(cause, io.ErrUnexpectedEOF) { // which say no more than that
		c.err = fmt.Errorf("%w: %w", ErrLost, cause)
	}
	c.track(false)
	c.conn.Close()
	close(c.ended)
	if c.o.Lost != nil && !c.closing {
		guard.Go("the news of the driver's end", func(error) {}, func() { c.o.Lost(c.cause()) })
	}
}

func (c *Client) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Client) track(open bool) {
	if c.o.TrackFD == nil {
		return
	}
	if raw, err := c.conn.(syscall.Conn).SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { c.o.TrackFD(int(fd), open) })
	}
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
)

// A probe is a ping-pong of small messages, and then a stream in one direction. The first byte of each frame says
// which.
const (
	pings      = 200
	pingBytes  = 64
	chunkBytes = 256 << 10
	// streamTime is how long the stream lasts.
	streamTime = 300 * time.Millisecond
	// probeTimeout limits the whole probe.
	probeTimeout = 10 * time.Second
	// dialTimeout limits the attempts at one address.
	dialTimeout = 2 * time.Second
)

// probeHello is the hello of a probing connection.
const probeHello = "doctor"

// Path is a host's measurement of its path to another host.
type Path struct {
	Address   string        // the other host's address that was used
	Latency   time.Duration // half of the round trip: the median
	Bandwidth float64       // bytes per second, one connection
}

// Listener waits for one probe.
type Listener struct {
	net.Listener
	key []byte
}

// Listen opens a port for one probe by a host that knows key. Serve answers the probe.
func Listen(key []byte) (*Listener, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	return &Listener{l, key}, nil
}

// Port is the port on which the Listener listens.
func (l *Listener) Port() int { return l.Addr().(*net.TCPAddr).Port }

// Serve answers one probe, refuses all other connections, and closes the listener. It blocks for a bounded time.
func (l *Listener) Serve() {
	defer l.Close()
	deadline := time.Now().Add(probeTimeout)
	l.Listener.(*net.TCPListener).SetDeadline(deadline)
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conn.SetDeadline(deadline)
		hello, err := auth.Accept(conn, l.key)
		if err == nil && string(hello) == probeHello {
			answer(conn)
			conn.Close()
			return
		}
		conn.Close()
	}
}

// answer sends pings back, then reads a stream and returns its length to the sender.
func answer(conn net.Conn) error {
	ping := make([]byte, pingBytes)
	for range pings {
		if _, err := io.ReadFull(conn, ping); err != nil {
			return err
		}
		if _, err := conn.Write(ping); err != nil {
			return err
		}
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, chunkBytes))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(conn, "%d\n", n)
	return err
}

// Probe measures the path to a Listener at the first of the addresses that works. The error names all addresses that
// did not work.
func Probe(ctx context.Context, key []byte, addresses []string) (Path, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var failures []error
	for _, a := range addresses {
		d := net.Dialer{Timeout: dialTimeout}
		conn, err := d.DialContext(ctx, "tcp", a)
		if err == nil {
			deadline, _ := ctx.Deadline()
			conn.SetDeadline(deadline)
			err = auth.Initiate(conn, key, []byte(probeHello))
			if err == nil {
				defer conn.Close()
				return measure(conn.(*net.TCPConn), a)
			}
			conn.Close()
		}
		failures = append(failures, fmt.Errorf("%s: %w", a, err))
	}
	if len(failures) == 0 {
		return Path{}, errors.New("the other host has no address but loopback's")
	}
	return Path{}, errors.Join(failures...)
}

func measure(conn *net.TCPConn, address string) (Path, error) {
	ping := make([]byte, pingBytes)
	var trips []time.Duration
	for range pings {
		begin := time.Now()
		if _, err := conn.Write(ping); err != nil {
			return Path{}, err
		}
		if _, err := io.ReadFull(conn, ping); err != nil {
			return Path{}, err
		}
		trips = append(trips, time.Since(begin))
	}
	slices.Sort(trips)
	chunk := make([]byte, chunkBytes)
	begin := time.Now()
	sent := int64(0)
	for time.Since(begin) < streamTime {
		n, err := conn.Write(chunk)
		sent += int64(n)
		if err != nil {
			return Path{}, err
		}
	}
	if err := conn.CloseWrite(); err != nil {
		return Path{}, err
	}
	var got int64
	if _, err := fmt.Fscan(conn, &got); err != nil {
		return Path{}, fmt.Errorf("the stream was cut short: %w", err)
	}
	if got != sent {
		return Path{}, fmt.Errorf("of %d bytes %d have arrived", sent, got)
	}
	return Path{Address: address, Latency: trips[len(trips)/2] / 2, Bandwidth: float64(sent) / time.Since(
		begin).Seconds()}, nil
}

// Rounds makes pairs of n hosts. Each host is in at most one pair of a round, and each pair in one round. It makes at
// most most rounds.
func Rounds(n, most int) (rounds [][][2]int) {
	seats := n + n%2 // the last seat may be empty
	for r := 0; r < seats-1 && r < most; r++ {
		var round [][2]int
		for i := range seats / 2 {
			// The circle method: the last seat is fixed, and the others rotate.
			a, b := (r+i)%(seats-1), (r+seats-1-i)%(seats-1)
			if i == 0 {
				b = seats - 1
			}
			if a < n && b < n {
				round = append(round, [2]int{min(a, b), max(a, b)})
			}
		}
		rounds = append(rounds, round)
	}
	return rounds
}

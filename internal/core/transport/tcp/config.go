package tcp

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
	"github.com/gorovod/gorovod/internal/core/transport/treeboard"
)

// Config describes one rank's attachment to one generation of the world.
type Config struct {
	Rank, Size int
	// Key is the job's secret, known to all ranks and to nobody else.
	Key []byte
	// Generation tells the worlds of one job apart.
	Generation uint64
	// Listener is a TCP listener or a link.Listener, at the address that the other ranks know. New owns it, also if it
	// returns an error.
	Listener net.Listener
	// Addrs lists the host:port pairs at which a rank may be reached. It is called on any goroutine.
	Addrs func(rank int) []string
	// Paths is the number of a rank's first addresses over which the data streams to that rank are spread. Optional;
	// the default is one.
	Paths func(rank int) int
	// Reached is called with the index of the address at which a rank was reached first. Optional; it must not block.
	Reached func(rank, route int)
	// Describe names a rank for people. Optional.
	Describe func(rank int) string
	// Knocks gets the connections that do not prove that they belong to the job. Optional.
	Knocks *auth.Knocks
	// TLS, if not nil, makes all connections use TLS, with these certificates. It is set on all ranks or on none.
	TLS *auth.Certificates
	// Timeout bounds the time to make a connection. Default 30 s.
	Timeout time.Duration
	// Idle is how often the kernels at both ends of an idle connection talk. 0: never.
	Idle time.Duration
	// Cards is the number of cache cards of each lane's board. Default 1024.
	Cards int
	// Early is the most bytes of an operand that travels with its mark, see treeboard.Config; 0: none does. It is the
	// same on all ranks.
	Early int
	// Streams is the number of connections that carry data from one rank to another. It is the same on all ranks.
	// Default 1, at most MaxStreams.
	Streams int
	// Combine makes the Combiner for the Requests of the given members of a lane, on their way to its coordinator. Nil:
	// each Request travels alone.
	Combine func(members []int) transport.Combiner
	// Grace is how long a lost connection waits for a better cause. Default 1 s.
	Grace time.Duration
	// Bell is the bell of this rank's driver, for which others than this network ring, too; nil if there is none. If it
	// is a transport.Alarm, the driver can sleep on the bell and on sockets at once. In any case the driver uses
	// Network.Bell.
	Bell transport.Bell
	// Wake is called after frames have come for a lane's board, and after an abort, because the driver may not be
	// looking. It is called on goroutines of the network and must not block. Optional.
	Wake func()
	// Lost is called when a connection to a rank has broken, on a goroutine of its own, once for each rank. It may find
	// out the cause, and call Abort with it. Close waits for it to return. Optional.
	Lost func(rank int, err error)
	// TrackFD is called with each descriptor when it opens and before it closes. Optional; it must be safe for
	// concurrent calls.
	TrackFD func(fd int, open bool)
}

// MaxStreams bounds Config.Streams.
const MaxStreams = 64

func (c *Config) check() error {
	setDefault(&c.Timeout, 30*time.Second)
	setDefault(&c.Cards, 1024)
	setDefault(&c.Grace, time.Second)
	setDefault(&c.Streams, 1)
	setDefaultFunc(&c.Wake, func() {})
	setDefaultFunc(&c.Lost, func(int, error) {})
	setDefaultFunc(&c.TrackFD, func(int, bool) {})
	if c.Paths == nil {
		c.Paths = func(int) int { return 1 }
	}
	if c.Describe == nil {
		c.Describe = func(rank int) string { return fmt.Sprintf("rank %d", rank) }
	}
	if c.Reached == nil {
		c.Reached = func(int, int) {}
	}
	switch err := link.Check(c.Listener); {
	case err != nil:
		return fmt.Errorf("tcp: %w", err)
	case c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("tcp: rank %d of %d", c.Rank, c.Size)
	case len(c.Key) == 0:
		return errors.New("tcp: no key")
	case c.Addrs == nil && c.Size > 1:
		return errors.New("tcp: no addresses")
	case c.Streams < 1 || c.Streams > MaxStreams:
		return fmt.Errorf("tcp: %d streams", c.Streams)
	case c.Early < 0 || c.Early > treeboard.MostEarly:
		return fmt.Errorf("tcp: operands of up to %d bytes travel ahead, at most %d are possible", c.Early,
			treeboard.MostEarly)
	case c.Timeout < 0 || c.Grace < 0 || c.Cards < 0:
		return fmt.Errorf("tcp: time-out %v, grace %v, %d cards", c.Timeout, c.Grace, c.Cards)
	}
	return nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func setDefaultFunc[F ~func() | ~func(int, error) | ~func(int, bool)](f *F, d F) {
	if *f == nil {
		*f = d
	}
}

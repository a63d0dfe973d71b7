// Package connect connects the ranks of a world. It finds out which ranks can share memory, chooses the transport,
// tells the others where this rank listens, and opens the endpoint for messages between ranks.
package connect

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/internal/core/transport/p2p"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/joining/roster"
)

// Options is the input of Ranks.
type Options struct {
	Config  *config.Config // the rank's knobs; the agreed ones are rank 0's
	Place   roster.Place
	Members roster.Members
	// Session is nil in a world of one.
	Session *rendezvous.Session
	// Peers name the job. Every connection proves that it knows Secret and Generation.
	Peers      []string
	Secret     []byte
	Generation uint64
	Knocks     *auth.Knocks

	// NextDeath returns a channel that is closed when the next rank dies; dead: a rank has died already.
	NextDeath func() (news <-chan struct{}, dead bool)
	// Vanished is called when the process of a rank on this host is gone.
	Vanished func(rank, pid int, exit transport.Exit)
	// Wake wakes the engine.
	Wake func()
	// Left reports that a rank has left in good order.
	Left func() bool
	// TrackFD, if set, is called with every descriptor that lives as long as the world.
	TrackFD func(fd int, open bool)
	Log     *slog.Logger
}

// connector connects one rank.
type connector struct {
	Options
	waiting *door // for messages between ranks; set from its opening until endpoint uses it
}

// Ranks connects this rank with the others, and blocks until all are connected. It returns the network, and the
// endpoint for messages between ranks.
func Ranks(ctx context.Context, o Options) (network transport.Network, messages *p2p.Endpoint, err error) {
	c := &connector{Options: o}
	if o.Place.Size == 1 {
		network = inproc.NewWorld(1, inproc.Options{Shared: true, Cards: c.cards()})[0]
	} else if network, err = c.network(ctx); err != nil {
		if c.waiting != nil {
			c.waiting.Close()
		}
		return nil, nil, err
	}
	if messages, err = c.endpoint(ctx, network); err != nil {
		network.Close()
		return nil, nil, err
	}
	return network, messages, nil
}

// cards is how many cards a board has. A board exists even if the cache is disabled.
func (c *connector) cards() int { return max(1, c.Config.CacheCapacity) }

// early is the room for operands that travel with their marks. Without a cache there are no marks. The autotuner tries
// larger ones than GOROVOD_EARLY_BYTES allows at first; ranks do not know whether rank 0 lets it.
func (c *connector) early() int {
	switch {
	case c.Config.CacheCapacity == 0 || c.Config.EarlyBytes == 0:
		return 0
	case c.Config.Autotune.On:
		return config.MaxEarlyBytes
	}
	return c.Config.EarlyBytes
}

// endpoint opens the endpoint for messages between ranks.
func (c *connector) endpoint(ctx context.Context, network transport.Network) (*p2p.Endpoint, error) {
	key := c.Secret
	switch {
	case c.waiting != nil: // opened together with the network's listener
	case c.Session == nil:
		l, _, err := c.listen()
		if err != nil {
			return nil, err
		}
		key = []byte(rand.Text())                             // only this rank sends to itself
		c.waiting = &door{l, c.toward([][]byte{nil}, 0, nil)} // and nothing is dialled for that
	default:
		doors, err := c.openDoors(ctx, "messages", 1)
		if err != nil {
			return nil, err
		}
		c.waiting = &doors[0]
	}
	d := c.waiting
	endpoint, err := p2p.New(p2p.Config{Rank: c.Place.Rank, Size: c.Place.Size, Key: key, Generation: c.Generation,
		Listener: d.Listener, Timeout: c.Config.Timeout, Addrs: d.addrs, Knocks: c.Knocks, TLS: c.Config.Seal(),
		Idle: c.Config.KeepAlive, TrackFD: c.TrackFD, Err: network.Err, Left: c.Left})
	if err != nil {
		return nil, fmt.Errorf("messages between ranks: %w", err)
	}
	return endpoint, nil
}

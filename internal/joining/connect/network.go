package connect

import (
	"context"
	"fmt"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/hosts"
	"github.com/gorovod/gorovod/internal/core/transport/shm"
	"github.com/gorovod/gorovod/internal/core/transport/tcp"
)

// network chooses the transport: shared memory between the ranks of a host if all of them could map the segment, and
// TCP between hosts. All ranks make the same choice, because they exchange their results.
func (c *connector) network(ctx context.Context) (transport.Network, error) {
	failpoint.Here("attach")
	var byHost [][]int
	var local *shm.Network
	if c.Config.Transport != "tcp" {
		var trouble string
		var err error
		if byHost, local, trouble, err = c.shareMemory(ctx); err != nil {
			return nil, err
		}
		switch {
		case len(byHost) == 1:
			c.Log.Debug("the transport is shared memory", "single copy", local.CanCopy())
			return local, nil
		case c.Config.Transport == "shm":
			if local != nil {
				local.Close()
			}
			return nil, fmt.Errorf("GOROVOD_TRANSPORT=shm, but shared memory can't be used: %s", trouble)
		}
	}
	between, err := c.overTCP(ctx)
	if err != nil {
		if local != nil {
			local.Close()
		}
		return nil, err
	}
	var network transport.Network
	if byHost == nil || len(byHost) == c.Place.Size {
		network, err = tcp.New(between)
	} else {
		network, err = hosts.New(hosts.Config{Hosts: byHost, Local: local, TCP: between})
	}
	if err != nil {
		return nil, err
	}
	c.Log.Debug("the transport between hosts is TCP", "ranks that share memory", byHost)
	return network, nil
}

// overTCP tells the other ranks where this one listens, for the network and for messages between ranks. It returns the
// configuration of the network over TCP, with its listener.
func (c *connector) overTCP(ctx context.Context) (tcp.Config, error) {
	doors, err := c.openDoors(ctx, "tcp", 2)
	if err != nil {
		return tcp.Config{}, err
	}
	d := doors[0]
	c.waiting = &doors[1]
	return tcp.Config{Rank: c.Place.Rank, Size: c.Place.Size, Key: c.Secret, Generation: c.Generation,
		Listener: d.Listener, Addrs: d.addrs, Paths: d.paths, Reached: d.reached, Describe: c.Members.Describe,
		Knocks: c.Knocks,
		TLS:    c.Config.Seal(), Timeout: c.Config.Timeout, Idle: c.Config.KeepAlive,
		Cards: c.cards(), Early: c.early(),
		Streams: c.Config.TCPStreams, Wake: c.Wake,
		TrackFD: c.TrackFD,
		Combine: func(members []int) transport.Combiner { return negotiate.NewCombiner(members) }}, nil
}

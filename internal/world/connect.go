package world

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/failpoint"
	"github.com/gorovod/gorovod/internal/guard"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/internal/transport/hosts"
	"github.com/gorovod/gorovod/internal/transport/shm"
	"github.com/gorovod/gorovod/internal/transport/tcp"
)

// connect chooses the transport: shared memory between the ranks of a host, if
// all of them could map the segment, and TCP between hosts. All ranks choose
// alike, because they exchange how it went.
func (w *World) connect(ctx context.Context, generation uint64, o Options) error {
	c := w.Config
	failpoint.Here("attach")
	var byHost [][]int
	var local *shm.Network
	if c.Transport != "tcp" {
		var trouble string
		var err error
		if byHost, local, trouble, err = w.shareMemory(ctx, generation, o); err != nil {
			return err
		}
		switch {
		case len(byHost) == 1:
			w.net = local
			o.Log.Debug("the transport is shared memory", "single copy", local.Reaches())
			return nil
		case c.Transport == "shm":
			if local != nil {
				local.Close()
			}
			return fmt.Errorf("GOROVOD_TRANSPORT=shm, but shared memory can't be used: %s", trouble)
		}
	}
	between, err := w.overTCP(ctx, generation, o)
	if err != nil {
		if local != nil {
			local.Close()
		}
		return err
	}
	var network transport.Network
	if byHost == nil || len(byHost) == c.Size {
		network, err = tcp.New(between)
	} else {
		network, err = hosts.New(hosts.Config{Hosts: byHost, Local: local, TCP: between})
	}
	if err != nil {
		return err
	}
	w.net = network
	o.Log.Debug("the transport between hosts is TCP", "ranks that share memory", byHost)
	return nil
}

// overTCP tells the other ranks where this one listens, for the messages between ranks, too, and returns
// what the network over TCP needs, the listener included.
func (w *World) overTCP(ctx context.Context, generation uint64, o Options) (tcp.Config, error) {
	c := w.Config
	doors, err := w.openDoors(ctx, "tcp", 2)
	if err != nil {
		return tcp.Config{}, err
	}
	d := doors[0]
	w.mailDoor = &doors[1]
	return tcp.Config{Rank: c.Rank, Size: c.Size, Key: c.Key, Generation: generation, Listener: d.Listener,
		Addrs: d.addrs, Paths: d.paths, Reached: d.reached, Describe: w.Describe, Knocks: w.knocks, TLS: c.TLS, Timeout: c.Timeout, Slots: slots(c), Streams: c.TCPStreams, Wake: w.wake,
		Combine: func(members []int) transport.Combiner { return negotiate.NewCombiner(members) }, TrackFD: o.TrackFD}, nil
}

// shareMemory attaches the ranks of each host to a segment of its own. It returns
// which ranks share memory in truth, the same on all ranks: where one could
// not attach, all of its host's are hosts of their own, and trouble says why of
// the first such host. local is nil where this rank is alone. It leaves time for TCP,
// and does not wait for a rank that has died.
func (w *World) shareMemory(ctx context.Context, generation uint64, o Options) (byHost [][]int, local *shm.Network, trouble string, err error) {
	c := w.Config
	supposed := w.supposedHosts()
	if len(supposed) > 1 {
		trouble = "the ranks are on several hosts"
		if c.Transport == "shm" || len(supposed) == c.Size {
			return supposed, nil, trouble, nil
		}
	}
	mine := hostOf(supposed, c.Rank)
	const attached = "ok"
	verdict := attached
	if len(mine) > 1 {
		if local, err = w.attach(ctx, generation, mine, len(supposed) > 1, o); err != nil {
			verdict = err.Error()
			verdict = verdict[:min(len(verdict), 4096)]
		}
	}
	verdicts, err := w.session.Exchange(ctx, "shm", []byte(verdict))
	if err != nil {
		if local != nil {
			local.Close()
		}
		return nil, nil, "", err
	}
	for _, ranks := range supposed {
		var troubles []string // one, if the ranks could tell one another
		for _, r := range ranks {
			if v := string(verdicts[r]); v != attached && !slices.Contains(troubles, v) {
				troubles = append(troubles, v)
			}
		}
		if len(troubles) == 0 {
			byHost = append(byHost, ranks)
			continue
		}
		for _, r := range ranks {
			byHost = append(byHost, []int{r})
		}
		why := strings.Join(troubles, "; ")
		if trouble == "" {
			trouble = why
		}
		if ranks[0] == c.Rank && c.Transport != "shm" {
			o.Log.Warn("shared memory can't be used; TCP is used instead", "ranks", ranks, "reason", why)
		}
	}
	slices.SortFunc(byHost, func(a, b []int) int { return a[0] - b[0] })
	if local != nil && len(hostOf(byHost, c.Rank)) == 1 {
		local.Close()
		local = nil
	}
	return byHost, local, trouble, nil
}

// attach attaches this rank to the segment of its host; several says that there are
// others.
func (w *World) attach(ctx context.Context, generation uint64, ranks []int, several bool, o Options) (*shm.Network, error) {
	c := w.Config
	limit := c.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(ctx, limit/3) // all ranks have met already
	defer cancel()
	w.mu.Lock()
	news, dead := w.news, len(w.deaths) > 0
	w.mu.Unlock()
	if dead {
		cancel()
	}
	guard.Go("the joining", func(error) { cancel() }, func() {
		select {
		case <-news:
			cancel() // the exchange that follows fails with the launcher's report
		case <-ctx.Done():
		}
	})
	boards := 0
	if several {
		boards = hosts.BoardBytes(len(ranks), slots(c))
	}
	return shm.Open(ctx, shm.Config{Rank: slices.Index(ranks, c.Rank), Size: len(ranks), Ranks: ranks, Key: c.Key, Job: strings.Join(c.Rendezvous, ","), Generation: generation,
		Timeout: c.Timeout, Slots: slots(c), Alarm: several, BoardBytes: boards, Cores: runtime.GOMAXPROCS(0), Staged: !c.SingleCopy, HugePages: c.HugePages, Died: w.onVanished, TrackFD: o.TrackFD})
}

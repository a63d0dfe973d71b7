package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/bootstrap"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/joining/world"
	"github.com/gorovod/gorovod/internal/launch/placement"
)

// launcherCost is what a job costs the host of its launcher, whose rendezvous is the one place that all ranks meet.
type launcherCost struct {
	connections int         // for the whole job
	start       passedBytes // what passes until all ranks have joined
	// whole and news are what passes when the launcher asks all ranks for their figures: for the first time, and again
	// after further steps. It asks each second while somebody looks at the job.
	whole, news passedBytes
	// wait is what passes while all ranks wait for the last one for longer than waitTime: they ask one another why.
	wait passedBytes
}

// waitTime is longer than what passes until a waiting rank asks all others what they wait for.
const waitTime = 15 * time.Second

// passedBytes is what has come in at the launcher and gone out from it, without headers of TCP.
type passedBytes struct{ in, out int }

func (p passedBytes) minus(q passedBytes) passedBytes { return passedBytes{p.in - q.in, p.out - q.out} }

// joinLimit is how long a part of this simulation may take.
const joinLimit = 5 * time.Minute

// simulateLauncher starts all ranks of a job in this process, as horovodrun would start each of them, lets them train,
// and looks at their figures. With waits one of them keeps the others waiting.
func simulateLauncher(s shape, waits bool) (cost launcherCost, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), joinLimit)
	defer cancel()
	l, err := newLauncher(s)
	if err != nil {
		return cost, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	worlds, err := l.join(ctx)
	defer func() { eachRank(len(worlds), func(r int) error { return leave(worlds[r]) }) }()
	if err != nil {
		return cost, err
	}
	cost.start = l.wire.passed()
	train := func(late time.Duration) error {
		return eachRank(len(worlds), func(r int) error {
			if r == len(worlds)-1 {
				time.Sleep(late)
			}
			return trainStep(worlds[r], s.tensors)
		})
	}
	if err := train(0); err != nil {
		return cost, err
	}
	cost.connections = int(l.wire.connections.Load())
	for _, answers := range []*passedBytes{&cost.whole, &cost.news} {
		before := l.wire.passed()
		if err := l.ask(ctx); err != nil {
			return cost, err
		}
		*answers = l.wire.passed().minus(before)
		if err := train(0); err != nil {
			return cost, err
		}
	}
	if !waits {
		return cost, nil
	}
	before := l.wire.passed()
	err = train(waitTime)
	cost.wait = l.wire.passed().minus(before)
	return cost, err
}

// launcher is a job's rendezvous, and what passes its connections.
type launcher struct {
	shape
	server *rendezvous.Server
	wire   *meteredListener
	key    []byte
	served chan error
	told   chan int // ranks whose figures have come
}

func newLauncher(s shape) (*launcher, error) {
	n := s.hosts * s.perHost
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &launcher{shape: s, wire: &meteredListener{Listener: listener}, key: bytes.Repeat([]byte{7}, 32),
		served: make(chan error, 1), told: make(chan int, n)}
	l.server = rendezvous.NewServer(l.key, n)
	l.server.Figures = func(rank int, _ uint64, _ string, value []byte) {
		if len(value) > 0 {
			l.told <- rank
		}
	}
	go func() { l.served <- l.server.Serve(l.wire) }()
	return l, nil
}

func (l *launcher) close() error {
	return errors.Join(l.server.Close(), <-l.served)
}

// join starts the ranks. It returns those that have joined, even if others have failed.
func (l *launcher) join(ctx context.Context) ([]*world.World, error) {
	n := l.hosts * l.perHost
	var hosts []placement.Host
	for h := range l.hosts {
		hosts = append(hosts, placement.Host{Name: fmt.Sprintf("node%03d", h), Slots: l.perHost})
	}
	slots, err := placement.Assign(hosts, n)
	if err != nil {
		return nil, err
	}
	addr := l.wire.Addr().(*net.TCPAddr).AddrPort()
	shared := placement.Shared(l.key, []netip.AddrPort{addr}, nil)
	var mu sync.Mutex
	var joined []*world.World
	err = eachRank(n, func(r int) error {
		variables := slots[r].Variables()
		c, err := config.Load(func(name string) (string, bool) {
			if v, ok := shared[name]; ok {
				return v, true
			}
			v, ok := variables[name]
			return v, ok
		})
		if err != nil {
			return err
		}
		w, err := world.Join(ctx, bootstrap.Launched(c, 1, time.Time{}), c,
			world.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		mu.Lock()
		defer mu.Unlock()
		joined = append(joined, w)
		return nil
	})
	return joined, err
}

// ask asks all ranks for their figures, and waits for them.
func (l *launcher) ask(ctx context.Context) error {
	n := l.hosts * l.perHost
	come := make(map[int]bool, n)
	again := time.NewTicker(time.Second) // the server asks a rank no sooner than it may
	defer again.Stop()
	l.server.AskFigures()
	for len(come) < n {
		select {
		case r := <-l.told:
			come[r] = true
		case <-again.C:
			l.server.AskFigures()
		case <-ctx.Done():
			return fmt.Errorf("%+v: the figures of %d of %d ranks have come: %w", l.shape, len(come), n, ctx.Err())
		}
	}
	return nil
}

// trainStep sums as many tensors as the shape has, all at once.
func trainStep(w *world.World, tensors int) error {
	data := make([]byte, 4*tensors)
	var entries []*engine.Entry
	for i := range tensors {
		p := data[4*i : 4*i+4]
		binary.NativeEndian.PutUint32(p, math.Float32bits(1))
		e, err := w.Engine.Enqueue(&engine.Op{Type: operation.Allreduce, DType: tensor.Float32, ReduceOp: tensor.Sum,
			Name: fmt.Sprintf("gradient.%d", i), Shape: tensor.Shape{1}, Prescale: 1, Postscale: 1, In: p, Out: p})
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	for i, e := range entries {
		done := e.Wait(joinLimit)
		err := e.Err()
		e.Release()
		switch {
		case !done:
			return errors.New("an allreduce has not ended")
		case err != nil:
			return err
		}
		if sum := math.Float32frombits(binary.NativeEndian.Uint32(data[4*i:])); sum != float32(w.Place.Size) {
			return fmt.Errorf("the sum of %d ones is %v", w.Place.Size, sum)
		}
	}
	return nil
}

func leave(w *world.World) error {
	w.Leave(joinLimit)
	return nil
}

// eachRank calls f for all ranks at once. It returns the first rank's error: mostly all have the same one.
func eachRank(n int, f func(r int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = f(r) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// meteredListener counts connections that come in, and their bytes.
type meteredListener struct {
	net.Listener
	connections, in, out atomic.Int64
}

func (l *meteredListener) passed() passedBytes {
	return passedBytes{int(l.in.Load()), int(l.out.Load())}
}

func (l *meteredListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.connections.Add(1)
	return &meteredConn{c, l}, nil
}

type meteredConn struct {
	net.Conn
	of *meteredListener
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.of.in.Add(int64(n))
	return n, err
}

func (c *meteredConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.of.out.Add(int64(n))
	return n, err
}

// Package world joins this process to a generation of the world, and leaves it. It finds the other ranks through the
// rendezvous of a bootstrap.Start, agrees with them on one roster and one configuration, lets package connect connect
// them, starts the engine, and lets package liveness watch for deaths.
package world

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/p2p"
	"github.com/gorovod/gorovod/internal/joining/bootstrap"
	"github.com/gorovod/gorovod/internal/joining/connect"
	"github.com/gorovod/gorovod/internal/joining/liveness"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/joining/roster"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"github.com/gorovod/gorovod/internal/observe/timeline"
	"github.com/gorovod/gorovod/internal/observe/vitals"
)

// Options is the input of Join.
type Options struct {
	// TrackFD, if set, is called with every descriptor that lives as long as the world.
	TrackFD func(fd int, open bool)
	// MainThread, if set, is engine.Options.MainThread.
	MainThread func() bool
	// OthersSubmit, if set, is engine.Options.OthersSubmit.
	OthersSubmit func() bool
	// Sets are process sets to register at once; the same on all ranks.
	Sets [][]int
	// MPI are the processes of the world, if MPI carries the data. They need not be in the order of the ranks.
	MPI *mpi.Communicator
	// Devices, if set, makes engine.Options.Devices. It is called before the engine starts.
	Devices func(w *World) engine.Devices
	Log     *slog.Logger
}

// World is this process's part in one generation.
type World struct {
	// Config has the knobs. The agreed ones are rank 0's.
	Config *config.Config
	Place  roster.Place
	Engine *engine.Engine
	// Homogeneous says that all hosts have the same number of ranks.
	Homogeneous bool
	// Timeline records on rank 0, or on all ranks: see StartTimeline.
	Timeline *timeline.Timeline
	// Devices is made by Options.Devices, nil without that.
	Devices engine.Devices

	start    bootstrap.Start
	members  roster.Members
	log      *slog.Logger
	flight   *flightDesk
	keeping  sync.WaitGroup // goroutines that write a record
	monitor  *liveness.Monitor
	knocks   *auth.Knocks
	net      transport.Network
	messages *p2p.Endpoint
	telling  sync.Mutex   // guards the next two
	told     feed.Told    // the figures that the launcher knows
	toldNaNs uint64       // as many of them the launcher knows
	vitals   vitals.Watch // looks while the launcher asks
	links    vitals.Links
	nic      nicCache
	session  *rendezvous.Session            // nil for a world of one that no launcher hears
	running  atomic.Pointer[engine.Engine]  // Engine, for callers before Join has returned
	devices  atomic.Pointer[engine.Devices] // Devices, likewise

	// unwatchMPI ends watchMPI; it does nothing if MPI does not carry the data
	unwatchMPI context.CancelFunc
}

// Join joins a generation, and blocks until all ranks have joined it, or until ctx ends: then the error lists the
// missing ranks. It changes c: it adopts rank 0's agreed knobs.
func Join(ctx context.Context, s bootstrap.Start, c *config.Config, o Options) (*World, error) {
	if !s.Deadline.IsZero() {
		limited, cancel := context.WithDeadline(ctx, s.Deadline)
		defer cancel()
		ctx = limited
	}
	w := &World{Config: c, Place: s.Place, Timeline: timeline.New(), start: s, log: o.Log, unwatchMPI: func() {}}
	w.Timeline.OnLoss(func(err error) {
		w.log.Warn("the timeline ends before the job, because its file cannot be written", "error", err)
	})
	o.TrackFD = w.track(o.TrackFD)
	w.knocks = auth.NewKnocks(func(text string) { o.Log.Warn(text) })
	var err error
	if s.Place.Size == 1 {
		if err = w.adopt(roster.Members{w.introduction(o)}); err == nil {
			err = w.begin(ctx, o)
		}
		if err == nil {
			w.enrol(ctx, o)
		}
	} else {
		err = w.meet(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	if err := w.addSets(o.Sets); err != nil {
		w.Leave(time.Second)
		return nil, err
	}
	return w, nil
}

// meet finds the rendezvous, and waits there for the other ranks.
func (w *World) meet(ctx context.Context, o Options) error {
	s := w.start
	session, err := rendezvous.Join(ctx, s.Peers, s.Secret, w.hello(o))
	if err != nil {
		return err
	}
	w.session = session
	w.start.Generation = session.Generation()
	o.Log.Debug("found the rendezvous", "address", session.Addr(), "of", len(s.Peers))
	failpoint.Here("rendezvous")
	if err = w.introduce(ctx, o); err == nil {
		if err = w.compareSets(ctx, o.Sets); err == nil {
			err = w.begin(ctx, o)
		}
	}
	if err == nil {
		return nil
	}
	session.Report(err.Error())
	session.Close()
	return err
}

// enrolTime is how long a world of one tries to reach its launcher.
const enrolTime = 3 * time.Second

// enrol tells the launcher, if there is one, that the rank of a world of one has joined, and answers its questions. The
// rank does not depend on that: it goes on without a launcher, and where another process is that rank for the launcher.
func (w *World) enrol(ctx context.Context, o Options) {
	s := w.start
	if len(s.Peers) == 0 || len(s.Secret) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, enrolTime)
	defer cancel()
	session, err := rendezvous.Join(ctx, s.Peers, s.Secret, w.hello(o))
	if err != nil {
		o.Log.Debug("the launcher does not hear of this rank", "error", err)
		return
	}
	w.session = session
	session.OnTell(w.figures)
}

// hello is this rank's introduction to the launcher.
func (w *World) hello(o Options) rendezvous.Options {
	p := w.start.Place
	return rendezvous.Options{Rank: p.Rank, Size: p.Size, Host: p.Host, PID: os.Getpid(),
		Generation: w.start.Generation, TLS: w.Config.Seal(), TrackFD: o.TrackFD}
}

// begin connects the ranks, which by now have one another's introductions, and starts the engine.
func (w *World) begin(ctx context.Context, o Options) (err error) {
	w.monitor = liveness.New(liveness.Options{Config: w.Config, Rank: w.Place.Rank, Members: w.members,
		Session: w.session, Record: w.keepRecord, Aborted: w.abortDevices, Log: o.Log})
	w.net, w.messages, err = connect.Ranks(ctx, connect.Options{Config: w.Config, Place: w.Place, Members: w.members,
		Session: w.session, Peers: w.start.Peers, Secret: w.start.Secret, Generation: w.start.Generation,
		Knocks:    w.knocks,
		NextDeath: w.monitor.NextDeath, Vanished: w.monitor.Vanished, Wake: w.wake, Left: w.leaving,
		TrackFD: o.TrackFD, Log: o.Log})
	if err != nil {
		return err
	}
	w.monitor.Connected(w.net, w.messages)
	if err := w.startEngine(o); err != nil {
		w.messages.Close()
		return err
	}
	return nil
}

// Describe names a rank in messages.
func (w *World) Describe(rank int) string { return w.members.Describe(rank) }

// RankOfMPI returns the rank of a process of MPI, -1 if it is not in the world.
func (w *World) RankOfMPI(process int) int { return w.members.RankOfMPI(process) }

// Fail reports that this rank's program has failed, see liveness.Monitor.Fail.
func (w *World) Fail(reason string) { w.monitor.Fail(reason) }

// Failure says why the operations of this rank have ended; "" while they work, and after a shutdown.
func (w *World) Failure() string { return w.monitor.Failure() }

// Abort fails this rank's operations, and those of all ranks that it can reach, for a cause that the world cannot see
// by itself.
func (w *World) Abort(cause error) { w.monitor.Abort(cause) }

// Leave ends this rank's membership; see engine.Shutdown.
func (w *World) Leave(limit time.Duration) {
	w.Engine.Settle()
	w.monitor.Leave()
	w.tellLast()
	w.vitals.Close()
	w.flight.close()
	w.Engine.Shutdown(limit)
	w.keeping.Wait()
	w.monitor.Close()
	if err := w.messages.Close(); err != nil {
		w.log.Warn("close the messages between ranks", "error", err)
	}
	w.knocks.Close()
	w.unwatchMPI()
	if err := w.Timeline.Close(); err != nil {
		w.log.Warn("close the timeline", "error", err)
	}
	if w.session != nil {
		w.session.Close()
	}
}

// track returns a function that passes each descriptor of the world to w.links, and to other if that is set.
func (w *World) track(other func(fd int, open bool)) func(fd int, open bool) {
	return func(fd int, open bool) {
		w.links.Track(fd, open)
		if other != nil {
			other(fd, open)
		}
	}
}

func (w *World) wake() {
	if e := w.running.Load(); e != nil {
		e.Wake()
	}
}

// Package world joins this process to a generation of the world: it finds the
// other ranks through the launcher's rendezvous, agrees with them on one
// configuration, chooses the transport, and watches who dies.
package world

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/auth"
	"github.com/gorovod/gorovod/internal/backend/mpi"
	"github.com/gorovod/gorovod/internal/config"
	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/failpoint"
	"github.com/gorovod/gorovod/internal/liveness/stall"
	"github.com/gorovod/gorovod/internal/printable"
	"github.com/gorovod/gorovod/internal/rendezvous"
	"github.com/gorovod/gorovod/internal/timeline"
	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/internal/transport/inproc"
	"github.com/gorovod/gorovod/internal/transport/p2p"
)

// newsDelay is how long a rank that has seen a peer vanish waits for the
// launcher's report, which knows the exit code or the signal.
const newsDelay = time.Second

// Options are what the caller of Join provides.
type Options struct {
	// TrackFD, if set, is told of every descriptor that lives as long as the world.
	TrackFD func(fd int, open bool)
	// MainThread, if set, is engine.Options.MainThread.
	MainThread func() bool
	// Sets are process sets to register at once; the same on all ranks.
	Sets [][]int
	// MPI are the processes of the world, if MPI carries the data. They need not be in the order of the ranks.
	MPI *mpi.Communicator
	Log *slog.Logger
}

// World is this process's membership in one generation.
type World struct {
	Config *config.Config
	Engine *engine.Engine
	// Homogeneous says that all hosts have the same number of ranks.
	Homogeneous bool
	// Timeline records on rank 0; elsewhere it is never started.
	Timeline *timeline.Timeline

	members   []member
	log       *slog.Logger
	stall     *stall.Inspector // nil if the check is disabled
	flight    *flightDesk
	keeping   sync.WaitGroup // who writes a record
	heartbeat *heartbeat
	knocks    *auth.Knocks
	net       transport.Network
	mail      *p2p.Mail
	mailDoor  *door               // between its opening and openMail
	session   *rendezvous.Session // nil for a world of one

	mu     sync.Mutex
	deaths map[int]rendezvous.Death
	news   chan struct{} // closed and renewed at every death
	left   bool          // this rank leaves: deaths mean nothing any more
}

// Join blocks until all ranks have joined the generation, or ctx ends; the error
// then lists the missing ranks. c is changed: rank 0's agreed knobs are adopted.
func Join(ctx context.Context, c *config.Config, generation uint64, o Options) (*World, error) {
	w := &World{Config: c, Homogeneous: true, Timeline: timeline.New(), log: o.Log, knocks: auth.NewKnocks(func(text string) { o.Log.Warn(text) }), deaths: make(map[int]rendezvous.Death), news: make(chan struct{})}
	if c.Size == 1 {
		w.members = []member{{Host: c.Hostname, PID: os.Getpid(), LocalSize: 1}}
		w.net = inproc.NewWorld(1, inproc.Options{Shared: true, Slots: max(1, c.CacheCapacity)})[0]
		if err := w.openMail(ctx, generation, o); err != nil {
			return nil, err
		}
		if err := w.startEngine(o); err != nil {
			w.mail.Close()
			return nil, err
		}
		if err := w.addSets(o.Sets); err != nil {
			w.Leave(time.Second)
			return nil, err
		}
		return w, nil
	}
	session, err := rendezvous.Join(ctx, c.Rendezvous, c.Key, rendezvous.Options{Rank: c.Rank, Size: c.Size, Host: c.Hostname, PID: os.Getpid(), Generation: generation, TLS: c.TLS, TrackFD: o.TrackFD})
	if err != nil {
		return nil, err
	}
	w.session = session
	o.Log.Debug("found the rendezvous", "address", session.Addr(), "of", len(c.Rendezvous))
	if err := w.meet(ctx, session.Generation(), o); err != nil {
		session.Report(err.Error())
		session.Close()
		if server := w.server(); server != "" && errors.Is(err, rendezvous.ErrLost) {
			return nil, fmt.Errorf("%s, which serves the rendezvous, is gone: %w", server, err)
		}
		return nil, err
	}
	if err := w.addSets(o.Sets); err != nil {
		w.Leave(time.Second)
		return nil, err
	}
	return w, nil
}

// meet does what follows once the launcher has been reached.
func (w *World) meet(ctx context.Context, generation uint64, o Options) error {
	failpoint.Here("rendezvous")
	if err := w.introduce(ctx, o); err != nil {
		return err
	}
	if err := w.compareSets(ctx, o.Sets); err != nil {
		return err
	}
	w.session.OnDeath(w.onDeath)
	if err := w.connect(ctx, generation, o); err != nil {
		if w.mailDoor != nil {
			w.mailDoor.Close()
		}
		return err
	}
	if err := w.openMail(ctx, generation, o); err != nil {
		w.net.Close()
		return err
	}
	if err := w.startEngine(o); err != nil {
		w.mail.Close()
		return err
	}
	w.session.OnLost(w.onLost)
	w.session.OnVerdict(w.onVerdict)
	return nil
}

// onLost is told that the rendezvous is gone. Where a rank serves it, that rank may have
// left in order, and its word of that be on the way.
func (w *World) onLost(err error) {
	server := w.server()
	if server == "" {
		w.abort(err) // "the launcher is gone"
		return
	}
	tick := time.NewTicker(newsDelay / 50)
	defer tick.Stop()
	for deadline := time.Now().Add(newsDelay); time.Now().Before(deadline); <-tick.C {
		w.mu.Lock()
		e, left := w.Engine, w.left
		w.mu.Unlock()
		if left {
			return
		}
		if e != nil {
			if by, over := e.ClosedBy(); over || by >= 0 {
				return
			}
		}
	}
	w.abort(fmt.Errorf("%s, which serves the rendezvous, is gone: %w", server, err))
}

// server names the rank that serves the rendezvous, which is rank 0; empty if the launcher does.
func (w *World) server() string {
	if name := w.session.ServedBy(); name == "" || len(w.members) == 0 {
		return name
	}
	return w.Describe(0)
}

// introduce exchanges who is where, and adopts rank 0's knobs.
func (w *World) introduce(ctx context.Context, o Options) error {
	c := w.Config
	var knobs map[string]string // those of rank 0 are enough, and there may be thousands of ranks
	if c.Rank == 0 {
		knobs = c.Agreed()
	}
	me := member{Host: c.Hostname, PID: os.Getpid(), LocalSize: c.LocalSize, Place: toldPlace(c), Machine: thisMachine(), Knobs: knobs, MPIRank: mpiRank(o.MPI), Rails: w.rails()}
	introduction := me.encode()
	failpoint.Scramble("rendezvous", introduction)
	values, err := w.session.Exchange(ctx, "join", introduction)
	if err != nil {
		return err
	}
	w.members = make([]member, len(values))
	for r, v := range values {
		if err := w.members[r].decode(v, &w.members[max(0, r-1)]); err != nil {
			return fmt.Errorf("what rank %d says of itself: %w", r, err)
		}
	}
	if err := checkPlaces(w.members); err != nil {
		return err
	}
	if c.Rank == 0 {
		w.warnOfSharedPlaces()
	}
	w.settle()
	mine := c.Agreed()
	differed, err := c.Adopt(w.members[0].Knobs)
	if err != nil {
		return err
	}
	for _, name := range differed {
		o.Log.Warn("this rank's setting differs from rank 0's, which counts", "name", name, "rank", c.Rank, "here", mine[name], "rank 0", w.members[0].Knobs[name])
	}
	w.spread()
	return nil
}

// slots is the size of a board: it exists even if the cache is disabled.
func slots(c *config.Config) int { return max(1, c.CacheCapacity) }

func (w *World) startEngine(o Options) error {
	c := w.Config
	if c.Rank == 0 && c.Timeline != "" && c.Timeline != config.TimelineDynamic {
		if err := w.Timeline.Start(c.Timeline, c.TimelineMarkCycles); err != nil {
			w.net.Close()
			return fmt.Errorf("HOROVOD_TIMELINE: %w", err)
		}
	}
	opts := engine.Options{Rank: c.Rank, Size: c.Size, FusionThreshold: c.FusionThreshold, CacheCapacity: c.CacheCapacity, Wire: c.Compression,
		GroupsApart: c.DisableGroupFusion, JoinAllOps: c.JoinAllOps, CycleTime: c.CycleTime, Timeline: w.Timeline,
		Spin: c.LocalSize <= runtime.GOMAXPROCS(0), SpareCores: 2*c.LocalSize <= runtime.GOMAXPROCS(0), OneHost: c.LocalSize == c.Size,
		Describe: w.Describe, Failed: w.failed, Agree: w.agree, Records: c.FlightRecords, Left: w.onLeft, MainThread: o.MainThread, Log: o.Log}
	if err := w.tune(&opts); err != nil {
		w.net.Close()
		return err
	}
	w.startHeartbeat()
	opts.Stalled = w.heartbeat.waiting
	if !c.StallCheckDisable {
		w.inspectStalls()
		opts.Stalled = func(oldest time.Duration) {
			w.heartbeat.waiting(oldest)
			w.stall.Check(oldest)
		}
	}
	opts.Collective = algorithms(c)
	if err := w.carryByMPI(&opts, o.MPI); err != nil {
		w.net.Close()
		return err
	}
	e, err := engine.New(w.net, opts)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.Engine = e
	w.mu.Unlock()
	w.flight = w.openFlightDesk(o.TrackFD)
	return nil
}

// Describe names a rank for people.
func (w *World) Describe(rank int) string {
	if rank < 0 || rank >= len(w.members) {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d on host %s (pid %d)", rank, printable.Text(w.members[rank].Host), w.members[rank].PID)
}

// Leave ends this rank's membership; see engine.Shutdown.
func (w *World) Leave(limit time.Duration) {
	w.mu.Lock()
	w.left = true
	w.mu.Unlock()
	if w.stall != nil {
		w.stall.Close()
	}
	w.flight.close()
	w.Engine.Shutdown(limit)
	w.keeping.Wait()
	w.heartbeat.close()
	if err := w.mail.Close(); err != nil {
		w.log.Warn("close the messages between ranks", "error", err)
	}
	w.knocks.Close()
	if err := w.Timeline.Stop(); err != nil {
		w.log.Warn("close the timeline", "error", err)
	}
	if w.session != nil {
		w.session.Close()
	}
}

func (w *World) wake() {
	w.mu.Lock()
	e := w.Engine
	w.mu.Unlock()
	if e != nil {
		e.Wake()
	}
}

// onDeath takes the launcher's news.
func (w *World) onDeath(d rendezvous.Death) {
	w.mu.Lock()
	_, known := w.deaths[d.Rank]
	w.deaths[d.Rank] = d
	close(w.news)
	w.news = make(chan struct{})
	e, left := w.Engine, w.left
	w.mu.Unlock()
	if known || left {
		return
	}
	if e != nil {
		by, over := e.ClosedBy()
		if over || by >= 0 && d.Signal == 0 && (d.ExitCode == 0 || d.Rank == by) {
			return // it left in order: the closed log ends what it ends, and asks for the cause
		}
	}
	w.abort(reported{errors.New(d.String())})
}

// onVanished is told that the process of a local rank is gone.
func (w *World) onVanished(rank, pid int) {
	if w.awaitNews(rank) != nil {
		return // onDeath has acted
	}
	w.mu.Lock()
	e, left := w.Engine, w.left
	w.mu.Unlock()
	if left {
		return
	}
	if e != nil {
		if by, over := e.ClosedBy(); over || by >= 0 {
			return // ranks leave; should one have died instead, the launcher will tell
		}
	}
	w.abort(&rankLost{rank, w.Describe(rank) + " has died"})
}

// awaitNews waits a moment for the launcher's report on a rank.
func (w *World) awaitNews(rank int) *rendezvous.Death {
	timer := time.NewTimer(newsDelay)
	defer timer.Stop()
	for {
		w.mu.Lock()
		d, ok := w.deaths[rank]
		news, left := w.news, w.left
		w.mu.Unlock()
		if ok {
			return &d
		}
		if left {
			return nil
		}
		select {
		case <-news:
		case <-timer.C:
			return nil
		}
	}
}

// Abort fails this rank's operations, and those of the others as far as they can be
// reached, for a cause that the world cannot see by itself.
func (w *World) Abort(cause error) { w.abort(cause) }

func (w *World) abort(cause error) {
	if w.net != nil {
		w.net.Abort(cause)
	}
}

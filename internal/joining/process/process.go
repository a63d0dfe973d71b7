// Package process holds the one world of this process, for process-wide interfaces: Horovod's C functions, Python and
// package hvd. It counts the generations, so that Init and Shutdown may follow one another any number of times.
//
// Package bootstrap finds out which rank the process is, and package world joins it.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/bootstrap"
	"github.com/gorovod/gorovod/internal/joining/roster"
	"github.com/gorovod/gorovod/internal/joining/world"
)

// leaveLimit is the most time that Shutdown waits for operations that all ranks have agreed to execute.
const leaveLimit = 10 * time.Second

// TrackFD, if set before Init, is called with every descriptor that lives as long as the world, because a forked child
// must close these.
var TrackFD func(fd int, open bool)

// Library, if set before Init, is the file of the library that has this package.
var Library string

// MainThread, if set before Init, reports whether the calling goroutine runs on the process's main thread and stays
// there, as it does when C calls Go. See engine.Options.MainThread.
var MainThread func() bool

// OthersSubmit, if set before Init, is engine.Options.OthersSubmit.
var OthersSubmit func() bool

// Devices, if set before Init, makes the carrier of tensors in the memory of devices. See world.Options.
var Devices func(w *world.World) engine.Devices

var (
	mu         sync.Mutex // held during Init and Shutdown
	generation uint64     // of the job
	job        string     // where the job's ranks meet, and their secret; for another job, generations count anew
	current    atomic.Pointer[world.World]
	overMPI    *mpi.Communicator // of the current world, if it uses MPI

	// starter finds out which rank this process is.
	starter = bootstrap.Process{TrackFD: func(fd int, open bool) {
		if TrackFD != nil {
			TrackFD(fd, open)
		}
	}, Library: func() string { return Library }}
)

// Options is the part of Init that comes from the program, not from the environment.
type Options struct {
	// Sets are process sets to register, the same on all ranks.
	Sets [][]int
	// MPIRanks, if not empty, are the processes of MPI_COMM_WORLD that make up the world, in the order of its ranks.
	// This process must be one of them. Without a meeting over MPI it has no effect.
	MPIRanks []int
	// MPIComms, if not nil, returns communicators of the program. The processes of the first one are the ranks. Each
	// other one has some of these processes, and becomes a process set, before Sets. It implies MPI.
	MPIComms func(*mpi.Library) []uintptr
}

// Init joins the world that the environment describes. It blocks until all
// ranks have called it, ctx ends, or the start timeout has passed. A second call
// without Shutdown changes nothing. sets are process sets to register, the same
// on all ranks.
//
// In an elastic job it waits for a place first, see Elastic.
func Init(ctx context.Context, lookup func(string) (string, bool), sets [][]int) error {
	return InitWith(ctx, lookup, Options{Sets: sets})
}

// toldSpelling: an earlier Init of this process has listed them. mu protects it.
var toldSpelling bool

// misspelt lists, on rank 0, variables whose names are misspelt. Under horovodrun, or a driver like it, the launcher
// has listed them.
func misspelt(c *config.Config, lookup func(string) (string, bool)) []string {
	place, _ := environment.Find(lookup) // with MPI, c does not have it yet
	if place.Rank > 0 || place.Launcher == environment.Horovodrun || len(c.ElasticDriver) > 0 || toldSpelling {
		return nil
	}
	toldSpelling = true
	var names []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if _, still := lookup(name); still {
			names = append(names, name)
		}
	}
	return config.Misspelt(names)
}

// InitWith is Init with Options.
func InitWith(ctx context.Context, lookup func(string) (string, bool), o Options) error {
	mu.Lock()
	defer mu.Unlock()
	if current.Load() != nil {
		return nil
	}
	if o.MPIComms != nil {
		lookup = withMPI(lookup)
	}
	c, err := config.Load(lookup)
	if err != nil {
		return err
	}
	log := logger(c, roster.Place{Rank: c.Told.Rank, Host: c.Told.Hostname})
	for _, text := range append(c.Warnings, misspelt(c, lookup)...) {
		log.Warn(text)
	}
	if c.TLS && (c.Controller == config.MPI || c.CPUOperations == config.MPI) {
		return errors.New("TLS (GOROVOD_TLS, GOROVOD_TLS_CERT) cannot encrypt what MPI carries, over connections of " +
			"its own: unset it, or do without MPI")
	}
	if len(c.ElasticDriver) > 0 {
		if c.Controller == config.MPI || c.CPUOperations == config.MPI {
			return errors.New("MPI cannot carry an elastic job: after a failure a process cannot go on with it " +
				"(unset HOROVOD_CONTROLLER and HOROVOD_CPU_OPERATIONS, and do not give a communicator)")
		}
		return elasticInit(ctx, c, lookup, o.Sets)
	}
	starter.EndsByExit = EndsByExit
	if told := fmt.Sprint(c.Told.Rendezvous, c.Told.Key); told != job {
		job, generation = told, 0
	}
	generation++
	from := bootstrap.Options{Generation: generation, Deadline: time.Now().Add(c.Timeout), MPIRanks: o.MPIRanks,
		MPIComms: o.MPIComms, Lookup: lookup, Log: func(p roster.Place) *slog.Logger { return logger(c, p) }}
	return starter.Begin(ctx, c, from, func(ctx context.Context, s bootstrap.Start) error {
		return join(
			ctx, s, c, o.Sets)
	})
}

// join joins a world, and makes it the current one.
func join(ctx context.Context, s bootstrap.Start, c *config.Config, sets [][]int) error {
	log := logger(c, s.Place)
	w, err := world.Join(ctx, s, c, world.Options{TrackFD: TrackFD, MainThread: MainThread,
		OthersSubmit: OthersSubmit, Sets: slices.Concat(s.Sets, sets), MPI: s.MPI, Devices: Devices, Log: log})
	if err != nil {
		return err
	}
	keepCheckpoints(w, log)
	current.Store(w)
	overMPI = s.MPI
	return nil
}

// Shutdown leaves the world. Pending operations of this process fail, and so do operations of other ranks that this
// rank has not submitted.
func Shutdown() {
	mu.Lock()
	defer mu.Unlock()
	w := current.Load()
	if w == nil {
		return
	}
	failure := w.Failure()
	w.Leave(leaveLimit)
	current.Store(nil)
	starter.Left(failure)
	if overMPI != nil {
		stopMPI(overMPI, w.Log())
		overMPI = nil
	}
}

// Serve starts a rendezvous, see bootstrap.Process.Serve.
func Serve(host string, key []byte, size int, lookup func(string) (string, bool)) (port int, err error) {
	return starter.Serve(host, key, size, lookup, logging.New(os.Stderr, logging.Options{Level: slog.LevelWarn}))
}

// Fail reports that this rank's program has failed: see world.World.Fail.
func Fail(reason string) {
	if w := current.Load(); w != nil {
		w.Fail(reason)
	}
}

// Failure returns the failure that has ended the current engine; "" if there is none.
func Failure() string {
	if w := current.Load(); w != nil {
		return w.Failure()
	}
	return ""
}

// World returns the current world; nil before Init and after Shutdown.
func World() *world.World { return current.Load() }

// Enqueue submits an operation to the current engine.
func Enqueue(op *engine.Op) (*engine.Entry, *engine.Error) {
	w := current.Load()
	if w == nil {
		return nil, engine.Disown(engine.ErrNotInitialized, *op)
	}
	return w.Engine.Enqueue(op)
}

// EnqueueGroup submits a group to the current engine.
func EnqueueGroup(name string, ops []engine.Op) ([]*engine.Entry, *engine.Error) {
	w := current.Load()
	if w == nil {
		return nil, engine.Disown(engine.ErrNotInitialized, ops...)
	}
	return w.Engine.EnqueueGroup(name, ops)
}

// logger makes a rank's log with the settings of the environment.
func logger(c *config.Config, p roster.Place) *slog.Logger {
	logging.Use(c.LogFormat)
	return logging.New(os.Stderr, logging.Options{Level: c.LogLevel, HideTime: c.LogHideTime, Rank: p.Rank,
		Host: p.Host})
}

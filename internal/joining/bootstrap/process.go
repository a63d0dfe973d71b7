package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
	"github.com/gorovod/gorovod/internal/joining/bootstrap/meet"
	"github.com/gorovod/gorovod/internal/joining/observer"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/joining/roster"
)

// Process is the part of bootstrap that outlives a generation in this process: the place where its ranks have met, and
// the rendezvous that it serves.
type Process struct {
	// TrackFD, if set, is called with every descriptor that lives as long as the rendezvous.
	TrackFD func(fd int, open bool)
	// EndsByExit says that the process ends by C's exit, so that libraries can be finalized then.
	EndsByExit bool
	// Library, if set, returns the file of the library that this code is part of; empty if it is part of the program.
	Library func() string

	met *meet.Offer // nil before the ranks have met

	mu sync.Mutex
	// server is the rendezvous of a job that another launcher has started. The job's next Init meets there again.
	server *rendezvous.Server
	// servers counts the rendezvous that the process has served.
	servers uint64
	// observer shows the job; nil if nobody asks for that.
	observer *observer.Observer
}

// Join joins the world of a Start. Its error is rendezvous.ErrNoServer if nobody serves at the Start's addresses.
type Join func(context.Context, Start) error

// Options is the input of Begin.
type Options struct {
	Generation uint64
	Deadline   time.Time
	// MPIRanks, if not empty, are the processes of MPI_COMM_WORLD that make up the world, in the order of its ranks.
	// This process is one of them.
	MPIRanks []int
	// MPIComms, if not nil, returns communicators of the program. The processes of the first one are the world. Each
	// other one makes a process set.
	MPIComms func(*mpi.Library) []uintptr
	// Lookup reads the environment.
	Lookup observer.Lookup
	// Log returns a rank's logger.
	Log func(roster.Place) *slog.Logger
}

// Begin finds out how this process was started, and calls join with the Start. If nobody serves at one Start, it tries
// the next. It is not for members of elastic jobs, see Assigned. One goroutine calls it at a time. It blocks until the
// ranks have met and join has returned.
func (p *Process) Begin(ctx context.Context, c *config.Config, o Options, join Join) error {
	ctx, cancel := context.WithDeadline(ctx, o.Deadline)
	defer cancel()
	var processes *processes
	var communicator *mpi.Communicator // nil, unless MPI has a part
	if c.Controller == config.MPI || c.CPUOperations == config.MPI {
		var err error
		if processes, err = p.openMPI(ctx, c, o); err != nil {
			return err
		}
		communicator = processes.Communicator
	}
	var s Start
	var err error
	switch {
	case c.Controller == config.MPI:
		s = Start{Secret: c.Told.Key, Generation: o.Generation, Deadline: o.Deadline, MPI: communicator}
		err = p.meetOverMPI(ctx, c, processes, &s, o, join)
	case c.StartedByOthers():
		s = Start{Place: launchersPlace(c), Secret: c.Told.Key, Generation: o.Generation, Deadline: o.Deadline,
			MPI: communicator}
		err = p.meet(ctx, c, s, o, join)
	default:
		s = Launched(c, o.Generation, o.Deadline)
		s.MPI = communicator
		err = join(ctx, s)
	}
	if err != nil && s.Place.Size > 0 {
		err = fmt.Errorf("rank %d of %d on host %s: %w", s.Place.Rank, s.Place.Size, s.Place.Host, err)
	}
	return err
}

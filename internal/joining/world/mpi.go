package world

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/engine"
)

func mpiRank(c *mpi.Communicator) int {
	if c == nil {
		return -1
	}
	return c.Rank()
}

// carryByMPI lets MPI carry the data of all lanes with several members, if rank 0's
// configuration asks for it. The boards stay on the world's own network.
func (w *World) carryByMPI(o *engine.Options, c *mpi.Communicator) error {
	if w.Config.CPUOperations != config.MPI || w.Place.Size == 1 {
		return nil
	}
	if c == nil {
		return fmt.Errorf("rank 0 lets MPI carry the data (HOROVOD_CPU_OPERATIONS=mpi), and this rank does not")
	}
	ranks := make([]int, len(w.members)) // of MPI, by rank
	seen := make(map[int]int)
	for r, m := range w.members {
		if m.MPIRank < 0 {
			return fmt.Errorf("rank 0 lets MPI carry the data (HOROVOD_CPU_OPERATIONS=mpi), and rank %d does not", r)
		}
		if other, ok := seen[m.MPIRank]; ok {
			return fmt.Errorf("ranks %d and %d are both process %d of MPI, which knows of %d: start them with "+
				"mpirun, or with horovodrun --mpi", other, r, m.MPIRank, c.Size())
		}
		seen[m.MPIRank], ranks[r] = r, m.MPIRank
	}
	o.AfterAbort = "This process cannot go on with MPI: end it, and start the job anew."
	o.Carrier = func(l engine.Opening) (collective.Carrier, error) {
		ctx, cancel := w.untilAbort()
		defer cancel()
		theirs := make([]int, len(l.Members))
		for i, r := range l.Members {
			theirs[i] = ranks[r]
		}
		return c.OpenLane(ctx, l.ID+engine.MaxSets*int(l.Incarnation), theirs, o.Collective)
	}
	w.watchMPI(c)
	return nil
}

// hangLimit is how long after an abort a call of MPI may last that should return at once.
const hangLimit = 5 * time.Second

// watchMPI ends the process if the driver does not come back from MPI after an abort, because then neither the driver
// nor the program could ever go on, or report the cause. It watches until Leave.
func (w *World) watchMPI(c *mpi.Communicator) {
	ctx, cancel := context.WithCancel(context.Background())
	w.unwatchMPI = cancel
	guard.Go("the watch over MPI", func(error) {}, func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for w.net.Err() == nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		if call := c.Hung(ctx, hangLimit); call != "" {
			w.log.Error(fmt.Sprintf("%v. %s has not returned for %v, so MPI hangs, and this process ends",
				w.net.Err(), call, hangLimit))
			os.Exit(1)
		}
	})
}

// untilAbort returns a context that ends with the start time-out, or when the network is aborted.
func (w *World) untilAbort() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), w.Config.Timeout)
	news, _ := w.monitor.NextDeath()
	guard.Go("the joining", func(error) { cancel() }, func() {
		select {
		case <-news: // a rank has died
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// Package hvd gives Go programs Horovod's collectives: every process of a job
// calls the same operations on tensors of the same names, and each gets the
// combined result.
//
//	if err := hvd.Init(); err != nil {
//		log.Fatal(err)
//	}
//	defer hvd.Shutdown()
//	grad := []float32{1, 2, 3}
//	err := hvd.Allreduce(ctx, "grad", grad) // now the average over all processes
//
// Start the program with horovodrun -np 4 ./program; started alone it is a job
// of one process. An operation runs when all processes have submitted it. Each
// process may submit its operations in its own order.
//
// Leave a slice alone until its operation has ended. Other operations may read it
// meanwhile. If an operation writes memory that another one in progress reads or
// writes, it fails on all processes, with ErrInvalidArgument on this one.
//
// A slice is a tensor of one dimension. Its elements may be any [Element]. Names
// tell operations apart: if this process submits a name that is still in progress,
// the error is ErrInvalidArgument. Allreduce, Broadcast and Reduce change their
// slice, the others return a new one. Each function blocks; its Async form returns
// a [Handle] or a [ResultHandle] to wait with. Barrier and Join have no such form.
// You may call all functions on any goroutine.
//
// Errors of operations match one of this package's sentinels with errors.Is, or
// are those of the context. After ErrInternal the job is over; after any other
// error it goes on.
package hvd

import (
	"context"
	"os"

	"github.com/gorovod/gorovod/internal/joining/process"
)

// Init joins the job that the environment describes. It blocks until all
// processes of the job have called it, at most HOROVOD_GLOO_TIMEOUT_SECONDS. After
// that time its error names the missing ranks. A second call without Shutdown
// returns at once, and cannot register further sets.
//
// Init also registers sets, which must be the same on all processes.
func Init(sets ...*ProcessSet) error { return InitContext(context.Background(), sets...) }

// InitContext is Init, but also ends when ctx ends.
func InitContext(ctx context.Context, sets ...*ProcessSet) error {
	ranks := make([][]int, len(sets))
	for i, s := range sets {
		ranks[i] = s.ranks
	}
	if err := process.Init(ctx, os.LookupEnv, ranks); err != nil {
		return inGo(err)
	}
	return adoptIDs(sets)
}

// Shutdown leaves the job. It does not wait for the other processes: operations that
// this process has not submitted fail on the others, too, with ErrInternal. Call
// Barrier first if others may still have some. Afterwards all processes may call
// Init again.
func Shutdown() { process.Shutdown() }

// IsInitialized reports whether Init has succeeded and Shutdown not been called.
func IsInitialized() bool { return process.World() != nil }

// Rank is this process's number in the job, from 0; -1 before Init.
func Rank() int { return topology(func(t *topo) int { return t.Rank }) }

// Size is the number of processes of the job; -1 before Init.
func Size() int { return topology(func(t *topo) int { return t.Size }) }

// LocalRank is this process's number among those of its host; -1 before Init.
func LocalRank() int { return topology(func(t *topo) int { return t.LocalRank }) }

// LocalSize is the number of processes on this host; -1 before Init.
func LocalSize() int { return topology(func(t *topo) int { return t.LocalSize }) }

// CrossRank is the number of this host among those that have this local rank; -1 before Init.
func CrossRank() int { return topology(func(t *topo) int { return t.CrossRank }) }

// CrossSize is the number of hosts that have this local rank; -1 before Init.
func CrossSize() int { return topology(func(t *topo) int { return t.CrossSize }) }

type topo struct{ Rank, Size, LocalRank, LocalSize, CrossRank, CrossSize int }

func topology(f func(*topo) int) int {
	w := process.World()
	if w == nil {
		return -1
	}
	c := w.Place
	return f(&topo{c.Rank, c.Size, c.LocalRank, c.LocalSize, c.CrossRank, c.CrossSize})
}

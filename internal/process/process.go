// Package process holds the one engine that a process-wide interface needs:
// Horovod's C functions, Python and package hvd share it. It counts the
// generations, so that Init and Shutdown may follow one another any number of times.
package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/config"
	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/world"
)

// leaveLimit bounds how long Shutdown waits for operations that all ranks have
// agreed to execute.
const leaveLimit = 10 * time.Second

// TrackFD, if set before Init, is told of every descriptor that lives as long
// as the world: a forked child must close them.
var TrackFD func(fd int, open bool)

var (
	mu         sync.Mutex // held during Init and Shutdown
	generation uint64
	current    atomic.Pointer[world.World]
)

// Init joins the world that the environment describes. It blocks until all
// ranks have called it, ctx ends, or the start timeout has passed. A second call
// without Shutdown changes nothing. sets are process sets to register, the same
// on all ranks.
//
// In an elastic job it waits for a place first, see Elastic.
func Init(ctx context.Context, lookup func(string) (string, bool), sets [][]int) error {
	mu.Lock()
	defer mu.Unlock()
	if current.Load() != nil {
		return nil
	}
	c, err := config.Load(lookup)
	if err != nil {
		return err
	}
	log := logger(c)
	for _, text := range c.Warnings {
		log.Warn(text)
	}
	if len(c.ElasticDriver) > 0 {
		return elasticInit(ctx, c, lookup, sets)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	generation++
	w, err := join(ctx, c, world.Options{TrackFD: TrackFD, Sets: sets, Log: log})
	if err != nil {
		return fmt.Errorf("rank %d of %d on host %s: %w", c.Rank, c.Size, c.Hostname, err)
	}
	current.Store(w)
	return nil
}

// Shutdown leaves the world. Operations of this process that are still pending
// fail, and so do those of other ranks that this rank had not submitted.
func Shutdown() {
	mu.Lock()
	defer mu.Unlock()
	w := current.Load()
	if w == nil {
		return
	}
	w.Leave(leaveLimit)
	current.Store(nil)
}

// World is the current membership, nil before Init and after Shutdown.
func World() *world.World { return current.Load() }

// Enqueue submits an operation to the current engine.
func Enqueue(op *engine.Op) (*engine.Entry, *engine.Error) {
	w := current.Load()
	if w == nil {
		return nil, engine.ErrNotInitialized
	}
	return w.Engine.Enqueue(op)
}

// EnqueueGroup submits a group to the current engine.
func EnqueueGroup(name string, ops []engine.Op) ([]*engine.Entry, *engine.Error) {
	w := current.Load()
	if w == nil {
		return nil, engine.ErrNotInitialized
	}
	return w.Engine.EnqueueGroup(name, ops)
}

func logger(c *config.Config) *slog.Logger {
	return slog.New(&logHandler{out: os.Stderr, level: c.LogLevel, hideTime: c.LogHideTime, rank: c.Rank})
}

package process

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/elastic/checkpoint"
	"github.com/gorovod/gorovod/internal/joining/world"
)

// ErrNoCheckpoints: GOROVOD_CHECKPOINT_DIR was not set at Init.
var ErrNoCheckpoints = errors.New("there is no directory for checkpoints: set GOROVOD_CHECKPOINT_DIR before hvd.init()")

// lastWorld is the last world that Init has joined. It outlives Shutdown, because a process whose launcher is gone
// still writes its state.
var lastWorld struct {
	sync.Mutex
	dir   string // for checkpoints; empty: none
	every int    // in commits
	rank  int
	log   *slog.Logger

	unwritten unwritten
}

func keepCheckpoints(w *world.World, log *slog.Logger) {
	lastWorld.Lock()
	defer lastWorld.Unlock()
	lastWorld.dir, lastWorld.every, lastWorld.rank, lastWorld.log = w.Config.CheckpointDir, w.Config.CheckpointEvery,
		w.Place.Rank, log
}

func checkpointDir() (dir string, log *slog.Logger) {
	lastWorld.Lock()
	defer lastWorld.Unlock()
	return lastWorld.dir, lastWorld.log
}

// CheckpointDue reports whether this process has to write this commit. final: the job goes no further, so every commit
// counts. With a negative number, it reports whether commits are written at all; all processes get the same answer.
func CheckpointDue(number int64, final bool) bool {
	lastWorld.Lock()
	defer lastWorld.Unlock()
	if number < 0 || lastWorld.dir == "" {
		return lastWorld.dir != ""
	}
	return lastWorld.rank == 0 && (final || (number+1)%int64(lastWorld.every) == 0)
}

// SaveCheckpoint writes the state of a commit. It blocks until the state is on the disk, or until the write has failed
// in a way that the job can live with (see unwritten).
func SaveCheckpoint(number int64, data []byte) error {
	dir, log := checkpointDir()
	if dir == "" {
		return ErrNoCheckpoints
	}
	err := checkpoint.Save(dir, number, data)
	if err == nil {
		saved(number)
	}
	lastWorld.Lock()
	defer lastWorld.Unlock()
	return lastWorld.unwritten.note(err, dir, number, Elastic() == Abandoned, log)
}

// saved tells the driver of an elastic job that a commit is on the disk, so that new workers can take it from there if
// all others fail.
func saved(number int64) {
	if c := elasticity.client.Load(); c != nil {
		c.Saved(number)
	}
}

// toldAgain is the least time between two warnings that checkpoints cannot be written.
const toldAgain = 10 * time.Minute

// unwritten is what this process knows of its failed writes of checkpoints. The state of a running job is in the memory
// of its processes, so a disk that has become full ends no job: the user gets a warning. A failed write is an error
//   - if the directory has never worked for this process, and cannot start to by itself: no rights, no directory
//   - if the job is over, and the disk is the last place for the state.
type unwritten struct {
	worked  bool      // a write has succeeded
	failed  bool      // the last write has failed
	warned  bool      // the user knows of the failures since the last success
	warning time.Time // when the user heard of one
}

// note takes the outcome of the write of a commit, and returns the error for the program. over: the job is over.
func (u *unwritten) note(err error, dir string, number int64, over bool, log *slog.Logger) error {
	switch {
	case err == nil:
		if u.failed && u.warned {
			log.Warn("checkpoints are written again", "directory", dir, "commit", number)
		}
		u.worked, u.failed, u.warned = true, false, false
		return nil
	case over || !u.worked && !passing(err):
		return err
	}
	u.failed = true
	if u.warning.IsZero() || time.Since(u.warning) >= toldAgain {
		u.warned, u.warning = true, time.Now()
		newest := "there is no checkpoint in " + dir
		if last := checkpoint.Last(dir); last >= 0 {
			newest = fmt.Sprintf("the newest checkpoint in %s is that of commit %d", dir, last)
		}
		log.Warn(fmt.Sprintf("%v; training goes on, and %s", err, newest))
	}
	return nil
}

// passing reports whether err may go by itself, or when somebody makes room.
func passing(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.ESTALE, syscall.ETIMEDOUT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// LoadCheckpoint reads the newest state on the disk; number is -1 if there is none. It skips damaged and foreign files
// with a warning, and warns once more if that leaves none.
func LoadCheckpoint() (number int64, data []byte, err error) {
	dir, log := checkpointDir()
	if dir == "" {
		return -1, nil, nil
	}
	skipped := false
	number, data, err = checkpoint.Newest(dir, func(err error) {
		skipped = true
		log.Warn(err.Error())
	})
	switch {
	case err == nil && number >= 0:
		log.Info("goes on from a checkpoint", "directory", dir, "commit", number, "bytes", len(data))
		saved(number)
	case err == nil && skipped:
		log.Warn("no intact checkpoint is left in " + dir + ": the job begins anew")
	}
	return number, data, err
}

package process

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/gorovod/gorovod/internal/elastic/checkpoint"
	"github.com/gorovod/gorovod/internal/world"
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

// SaveCheckpoint writes the state of a commit. It blocks until the state is on the disk.
func SaveCheckpoint(number int64, data []byte) error {
	dir, _ := checkpointDir()
	if dir == "" {
		return ErrNoCheckpoints
	}
	return checkpoint.Save(dir, number, data)
}

// LoadCheckpoint reads the newest state on the disk; number is -1 if there is none. It skips damaged and foreign files
// with a warning.
func LoadCheckpoint() (number int64, data []byte, err error) {
	dir, log := checkpointDir()
	if dir == "" {
		return -1, nil, nil
	}
	number, data, err = checkpoint.Newest(dir, func(err error) { log.Warn(err.Error()) })
	if err == nil && number >= 0 {
		log.Info("goes on from a checkpoint", "directory", dir, "commit", number, "bytes", len(data))
	}
	return number, data, err
}

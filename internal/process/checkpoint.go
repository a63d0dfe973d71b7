package process

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/gorovod/gorovod/internal/config"
	"github.com/gorovod/gorovod/internal/elastic/checkpoint"
)

// ErrNoCheckpoints: GOROVOD_CHECKPOINT_DIR was not set at Init.
var ErrNoCheckpoints = errors.New("there is no directory for checkpoints: set GOROVOD_CHECKPOINT_DIR before hvd.init()")

// lastConfig is that of the last Init that succeeded. It outlives Shutdown, since
// a process whose launcher is gone writes what it has.
var lastConfig struct {
	sync.Mutex
	c   *config.Config
	log *slog.Logger
}

func keepConfig(c *config.Config, log *slog.Logger) {
	lastConfig.Lock()
	defer lastConfig.Unlock()
	lastConfig.c, lastConfig.log = c, log
}

func checkpoints() (c *config.Config, log *slog.Logger) {
	lastConfig.Lock()
	defer lastConfig.Unlock()
	if lastConfig.c == nil {
		return &config.Config{}, nil
	}
	return lastConfig.c, lastConfig.log
}

// CheckpointDue says whether this process is the one to write a commit, and it is that
// commit's turn. final takes every commit, as of a job that goes no further. With a
// negative number it says whether commits are written at all, the same on all processes.
func CheckpointDue(number int64, final bool) bool {
	c, _ := checkpoints()
	if number < 0 {
		return c.CheckpointDir != ""
	}
	return c.CheckpointDir != "" && c.Rank == 0 && (final || (number+1)%int64(c.CheckpointEvery) == 0)
}

// SaveCheckpoint writes the state of a commit. It blocks until the disk has it.
func SaveCheckpoint(number int64, data []byte) error {
	c, _ := checkpoints()
	if c.CheckpointDir == "" {
		return ErrNoCheckpoints
	}
	return checkpoint.Save(c.CheckpointDir, number, data)
}

// LoadCheckpoint reads the newest state that was written; number is -1 if there is none. Files
// that are damaged or foreign are skipped, with a warning.
func LoadCheckpoint() (number int64, data []byte, err error) {
	c, log := checkpoints()
	if c.CheckpointDir == "" {
		return -1, nil, nil
	}
	number, data, err = checkpoint.Newest(c.CheckpointDir, func(err error) { log.Warn(err.Error()) })
	if err == nil && number >= 0 {
		log.Info("goes on from a checkpoint", "directory", c.CheckpointDir, "commit", number, "bytes", len(data))
	}
	return number, data, err
}

package process

import (
	"errors"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/world"
)

// ErrTimelineNotEnabled: HOROVOD_TIMELINE was not set before Init.
var ErrTimelineNotEnabled = errors.New("the timeline is not enabled: set HOROVOD_TIMELINE=DYNAMIC, or to a file, " +
	"before initialisation")

// StartTimeline starts a timeline in the file at path, on rank 0; on other ranks it does nothing. If path contains
// {rank}, each rank writes a file. It does file I/O.
func StartTimeline(path string, markCycles bool) error {
	w, err := recording()
	if err != nil {
		return err
	}
	return w.StartTimeline(path, markCycles)
}

// StopTimeline completes and closes the file. Without a timeline it does nothing.
func StopTimeline() error {
	w, err := recording()
	if err != nil {
		return err
	}
	return w.Timeline.Stop()
}

// recording returns the current world, if timelines are enabled.
func recording() (*world.World, error) {
	w := current.Load()
	switch {
	case w == nil:
		return nil, engine.ErrNotInitialized
	case w.Config.Timeline == "":
		return nil, ErrTimelineNotEnabled
	}
	return w, nil
}

package hvd

import "github.com/gorovod/gorovod/internal/process"

// StartTimeline writes from now on what becomes of each tensor to the file at
// path, for chrome://tracing or Perfetto; what is in the file is replaced. A
// timeline that runs is completed first. With markCycles the batches of
// negotiated operations are marked, too. Rank 0 writes; on other processes the
// call does nothing, so all may make it.
//
// HOROVOD_TIMELINE must have been set before Init, to DYNAMIC or to a file, else
// the error is ErrTimelineNotEnabled; ErrNotInitialized before Init. Other errors
// are about the file. It does file I/O, but does not wait for other processes.
func StartTimeline(path string, markCycles bool) error {
	return wrapAny(process.StartTimeline(path, markCycles))
}

// StopTimeline completes the file of the timeline, which is then valid JSON with
// everything in it, and closes it. Without one it does nothing. The errors are
// those of StartTimeline.
func StopTimeline() error { return wrapAny(process.StopTimeline()) }

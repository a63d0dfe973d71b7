package hvd

import "github.com/gorovod/gorovod/internal/joining/process"

// StartTimeline records the phases of each operation from now on in the file at
// path, for chrome://tracing or Perfetto. It replaces the file, and completes a
// running timeline first. With markCycles it also marks each batch of negotiated
// operations. Rank 0 writes; on other processes the call does nothing. If path has
// {rank}, each process writes, to a file with its rank in that place: gorovod trace
// merge makes one trace of these.
//
// HOROVOD_TIMELINE must have been set before Init, to DYNAMIC or to a file, else
// the error is ErrTimelineNotEnabled. Before Init it is ErrNotInitialized. Other
// errors are about the file. The call does file I/O, but does not wait for other
// processes.
func StartTimeline(path string, markCycles bool) error {
	return wrapAny(process.StartTimeline(path, markCycles))
}

// StopTimeline completes the timeline's file, so that it is valid JSON, and closes
// it. Without a running timeline it does nothing. The errors are those of
// StartTimeline.
func StopTimeline() error { return wrapAny(process.StopTimeline()) }

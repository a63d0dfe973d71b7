package job

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// rank is one slot of a job while its command runs.
type rank struct {
	placement.Slot
	supervised
	crew spawn.Crew
	pid  atomic.Int64 // of the command; 0 until it is known
	news chan<- news
}

// directory is the folder of its output with --output-filename, its number padded with zeros to the width of the
// largest; empty without.
func (r *rank) directory() string {
	if r.job.OutputDir == "" {
		return ""
	}
	return filepath.Join(r.job.OutputDir, fmt.Sprintf("rank.%0*d", len(fmt.Sprint(r.Size-1)), r.Rank))
}

func (r *rank) signal(sig syscall.Signal) { r.crew.Signal(r.Rank, sig) }

func (r *rank) Started(pid int) {
	r.pid.Store(int64(pid))
	r.job.server.Started(r.Rank, r.Host, pid)
	r.job.tell("rank %d runs on %s with pid %d", r.Rank, r.Host, pid)
}

func (r *rank) Ended(e spawn.Outcome) {
	if e.Err != nil {
		r.news <- news{rank: r, kind: cannotStart, err: &startError{r.Rank, e.Code, e.Err}}
		return
	}
	d := r.death(e)
	d.Rank = r.Rank
	r.news <- news{rank: r, kind: ended, death: r.job.server.Died(d)}
}

func (r *rank) Gone() { r.news <- news{rank: r, kind: gone} }

// startError is the error of a rank whose command could not start, with the launcher's exit code.
type startError struct {
	rank int
	code int
	err  error
}

func (e *startError) Error() string { return fmt.Sprintf("cannot start rank %d: %v", e.rank, e.err) }

func (e *startError) Unwrap() error { return e.err }

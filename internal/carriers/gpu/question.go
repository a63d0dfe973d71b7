//go:build cgo && linux

package gpu

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// NCCLVersion returns the version code of the NCCL that collectives of this process can use with a wish, such as 21805,
// or 0 if they can use none. It loads the libraries, but does not start CUDA, so the program may still choose its
// devices. If the libraries have not answered within limit, NCCLVersion logs which call has not returned, and returns
// 0; later calls do not wait for it again.
func NCCLVersion(wish config.GPU, limit time.Duration) int {
	version, _ := AwaitNCCLVersion(wish, limit, limit)
	return version
}

// AwaitNCCLVersion is NCCLVersion for a caller that waits at most timeout, and then asks again. It reports whether the
// version is known.
func AwaitNCCLVersion(wish config.GPU, limit, timeout time.Duration) (version int, known bool) {
	q := current(wish)
	select {
	case <-q.done:
		return q.version, true
	case <-time.After(min(timeout, time.Until(q.began.Add(limit)))):
	}
	if time.Since(q.began) < limit {
		return 0, false
	}
	q.told.Do(func() { q.tell(limit) })
	return 0, true
}

// question is one search for NCCL.
type question struct {
	wish    config.GPU
	began   time.Time
	done    chan struct{} // closed when version is known
	version int
	told    sync.Once // that it is late
}

// latest is the question that was asked last.
var latest struct {
	sync.Mutex
	*question
}

// current returns the question that is under way, or asks a new one: meanwhile the process may have loaded libraries.
func current(wish config.GPU) *question {
	latest.Lock()
	defer latest.Unlock()
	if q := latest.question; q != nil && q.wish == wish {
		select {
		case <-q.done:
		default:
			return q
		}
	}
	q := &question{wish: wish, began: time.Now(), done: make(chan struct{})}
	latest.question = q
	guard.Go("a question about NCCL", func(error) {}, func() {
		defer close(q.done)
		q.version = ncclVersion(wish)
	})
	return q
}

// tell logs which call keeps the question from its answer.
func (q *question) tell(limit time.Duration) {
	call, _ := cuda.Underway()
	log := logging.New(os.Stderr, logging.Options{Level: slog.LevelWarn})
	log.Warn(fmt.Sprintf("collectives do without NCCL as far as this process knows: %s has not returned for %v",
		cmp.Or(call, "a call of CUDA or NCCL"), limit))
}

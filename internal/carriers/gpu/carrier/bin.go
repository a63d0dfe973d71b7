package carrier

import (
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// bin frees memory on a goroutine of its own, because CUDA may wait for the whole device when it frees memory, and a
// driver must not wait for it (see order). Any goroutine may throw memory away, also memory that the device still uses.
type bin struct {
	failed func(error) // takes a panic of the goroutine

	mu      sync.Mutex
	frees   []func()
	emptied chan struct{} // closed when the goroutine ends; nil while there is none
	closed  bool          // nobody drives any more
	stuck   bool          // since then the device has not let anybody free anything in time
}

// throw makes the goroutine call free soon. After close, throw waits for that, unless the device has been stuck.
func (b *bin) throw(free func()) {
	b.mu.Lock()
	waits := b.closed && !b.stuck
	b.frees = append(b.frees, free)
	if b.emptied == nil {
		b.emptied = make(chan struct{})
		guard.Go("the release of device memory", b.failed, b.run)
	}
	b.mu.Unlock()
	if waits {
		b.settle()
	}
}

// close waits until all memory is free, unless the device is stuck. Memory that is thrown away later is freed, too.
func (b *bin) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.settle()
}

// settle waits until all memory is free, and notes if that takes too long, so that nobody waits again.
func (b *bin) settle() {
	b.mu.Lock()
	emptied := b.emptied
	b.mu.Unlock()
	if emptied != nil && !b.empties(aftermath) {
		b.mu.Lock()
		b.stuck = true
		b.mu.Unlock()
	}
}

func (b *bin) run() {
	for {
		b.mu.Lock()
		frees := b.frees
		b.frees = nil
		if len(frees) == 0 {
			close(b.emptied)
			b.emptied = nil
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		for _, free := range frees {
			free()
		}
	}
}

// empties waits up to limit until all memory is free, and reports whether memory has become free. limit is short,
// because the device may wait for the caller.
func (b *bin) empties(limit time.Duration) bool {
	b.mu.Lock()
	emptied := b.emptied
	b.mu.Unlock()
	if emptied == nil {
		return false
	}
	select {
	case <-emptied:
		return true
	case <-time.After(limit):
		return false
	}
}

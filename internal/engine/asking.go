package engine

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// askingFor is how long a program that has asked whether its operation has ended is taken to ask again:
	// it waits in a loop of its own, which may sleep for some milliseconds.
	askingFor = 20 * time.Millisecond
	// spinningFor is how soon a program asks again if its loop does not sleep. Such a loop leaves the background
	// goroutine no core where ranks share cores, so the thread that asks drives.
	spinningFor = 200 * time.Microsecond
	// spinningNap is how long the background goroutine then leaves the work to that thread.
	spinningNap = 2 * time.Millisecond
)

// firstAsk is no later than any: what askedAt counts from.
var firstAsk = time.Now()

// asked notes that the program has found an operation in progress, and reports whether its loop spins. The background
// goroutine is not lazy while it goes on asking.
func (e *Engine) asked() (spins bool) {
	now := int64(time.Since(firstAsk))
	last := e.askedAt.Swap(now)
	if shared := e.opts.OneHost && !e.opts.SpareCores; shared && (last == 0 || now-last > int64(askingFor)) {
		e.endNap()
	}
	if spins = last != 0 && now-last <= int64(spinningFor); spins {
		e.spunAt.Store(now)
	}
	return spins
}

// asking reports whether the program has asked just now.
func (e *Engine) asking() bool { return justNow(&e.askedAt) }

// spinning reports whether it has asked in a loop that spins.
func (e *Engine) spinning() bool { return justNow(&e.spunAt) }

func justNow(stamp *atomic.Int64) bool {
	at := stamp.Load()
	return at != 0 && int64(time.Since(firstAsk))-at <= int64(askingFor)
}

// step drives for a program whose loop spins: once, if nobody else drives. Where ranks share cores and there was
// nothing to do, it gives the core away.
func (e *Engine) step() {
	worked := false
	if noting {
		e.notes.add("seat", "a loop asks", "step")
	}
	if e.wanted.Load() == 0 && e.role.TryLock() || e.dozing.Load() && e.takeOver() {
		worked = e.progressOnce()
		e.leaveRole()
	}
	if !worked && !e.opts.Spin {
		yield()
	}
}

// progressOnce is progress for who does not go on driving. The caller holds the role.
func (e *Engine) progressOnce() bool {
	defer e.abortOnPanic()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return e.progress()
}

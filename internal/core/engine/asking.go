package engine

import (
	"runtime/debug"
	"time"

	"github.com/gorovod/gorovod/internal/core/driving"
)

// asked notes that the program has asked for an operation and found it in progress. It returns the time, and whether
// the program asks in a loop that never sleeps. While a program asks, the background goroutine is not lazy.
func (e *Engine) asked() (at moment, spins bool) {
	at = thisMoment()
	now := at.since(startedAt)
	last := time.Duration(e.askedAt.Swap(int64(now)))
	spins, hurry := e.job.Asked(last, now)
	if hurry {
		e.endNap()
	}
	if spins {
		e.spunAt.Store(int64(now))
	}
	return at, spins
}

// step drives once for a program that asks in a loop, if nobody drives or the background goroutine dozes. If there was
// nothing to do and ranks share cores, step gives the core away. Such a program may ask for as long as a rank is
// missing, so step makes the checks of a waiting driver, too.
func (e *Engine) step(now moment) {
	worked := false
	e.noteAsked()
	if e.seat.take(driving.Seat.Wait) || e.seat.now().Dozing() && e.takeOver() {
		worked = e.progressOnce(now)
		e.leaveSeat()
	}
	if !worked && !e.opts.Spin {
		yield()
	}
}

// progressOnce makes the checks of a waiting driver and calls progress once, for a thread that leaves the seat
// afterwards. The caller has the seat.
func (e *Engine) progressOnce(now moment) bool {
	defer e.abortOnPanic()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	e.checkShared(now)
	e.checkStall(now)
	return e.progress()
}

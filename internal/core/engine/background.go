package engine

import (
	"math"
	"runtime/debug"
	"time"

	"github.com/gorovod/gorovod/internal/core/driving"
)

// mood describes the program for the background goroutine's policy.
func (e *Engine) mood() driving.Mood {
	asks := driving.Asks{At: time.Duration(e.askedAt.Load()), Spun: time.Duration(e.spunAt.Load())}
	now := asks.At
	if now != 0 { // otherwise the time does not matter
		now = thisMoment().since(startedAt)
	}
	return e.job.Mood(int(e.callbacks.Load()), asks, now)
}

// expectCallback notes that an operation's end will start a callback. Until callbackStarted is called, the background
// goroutine is not lazy.
func (e *Engine) expectCallback() {
	if e.callbacks.Add(1) == 1 {
		e.endNap()
	}
}

// endNap ends a nap of the background goroutine, because it must not be lazy any more.
func (e *Engine) endNap() {
	select {
	case e.hurry <- struct{}{}:
	default:
	}
}

// callbackStarted undoes an expectCallback.
func (e *Engine) callbackStarted() { e.callbacks.Add(-1) }

// nap sleeps for d, or until expectCallback or asked ends the nap.
func (e *Engine) nap(d time.Duration) {
	e.napping.Reset(d)
	select {
	case <-e.napping.C:
	case <-e.hurry:
		e.napping.Stop()
		if more := driving.Hurried(d, e.mood()); more > 0 {
			time.Sleep(more)
		}
	}
}

// background drives whenever something is pending and nobody waits.
func (e *Engine) background() {
	defer close(e.stopped)
	for {
		select {
		case <-e.kick:
			e.attend()
		case <-e.quit:
			return
		}
	}
}

// attend drives until nothing is pending, or until another thread has the seat. That thread finds the next driver when
// it leaves the seat.
func (e *Engine) attend() {
	b, nap := e.job.Kicked(e.mood(), &e.cores)
	for {
		e.noteNap(nap)
		e.nap(nap)
		if !e.seat.take(driving.Seat.Attend) {
			e.noteReturn()
			return
		}
		b.Seated(e.mood())
		e.driveAside(&b)
		midway := e.someMidway()
		after := e.seat.leave()
		if after.Next() == driving.WakeParked {
			e.wakeNext()
		}
		mood := e.mood()
		e.noteLeft(&b, midway, mood, after)
		if after.Pending() == 0 || after.Closing() {
			return
		}
		nap = b.Left(midway, mood)
	}
}

// driveAside makes progress for as long as the policy says so and nobody else needs the seat. It first makes the checks
// of a waiting driver, because it never sleeps while it finds work every few milliseconds. The caller has the seat.
func (e *Engine) driveAside(b *driving.Background) {
	defer e.abortOnPanic()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	e.noteBeginAside(b)
	now := thisMoment()
	e.checkShared(now)
	e.checkStall(now)
	for {
		worked := e.progress()
		if worked {
			b.Worked()
		}
		if e.failure.Load() != nil || e.seat.now().AsideYields() {
			e.noteOverAside(worked)
			return
		}
		if worked {
			e.noteWorked("aside", driving.Poll)
			continue
		}
		midway, polled, mood := e.someMidway(), e.polled(), e.mood()
		action := b.Nothing(midway, polled, mood)
		e.noteNothingAside(midway, polled, mood, action)
		switch action {
		case driving.Yield:
			e.offerCore("aside")
		case driving.Check:
			e.offerCore("aside")
			e.checkStall(thisMoment())
		case driving.Rest:
			e.doze()
			b.Woke()
		case driving.HandOver:
			return
		}
	}
}

// doze sleeps on the bell. A waiter may wake it. The caller has the seat.
func (e *Engine) doze() {
	e.seat.change(driving.Seat.Doze)
	e.sleep(nil, noDeadline)
	e.seat.change(driving.Seat.Rise)
	e.noteWokeAside()
}

// someMidway reports whether a collective is under way in any lane, so that other members may be working for it now.
// The caller has the seat.
func (e *Engine) someMidway() bool {
	for _, l := range *e.lanes.Load() {
		if l.current.op != nil {
			return true
		}
	}
	return false
}

// noDeadline is the time left for a caller without a deadline.
const noDeadline = math.MaxInt64

// takeOver tries to get the seat for a waiter from the background goroutine. It gives up if another waiter drives, or
// if the background goroutine does not leave the seat soon: it is in the middle of a long step, or another program has
// the core that it needs, which a slow yield shows.
func (e *Engine) takeOver() bool {
	now := e.seat.now()
	e.noteFinds(now)
	if !now.Aside() {
		return false
	}
	now = e.seat.claim()
	defer e.seat.unclaim()
	if now.Dozing() {
		e.ring()
	}
	for range driving.ClaimTries {
		if e.seat.now().Wanted() {
			return false
		}
		if e.seat.take(driving.Seat.Wait) {
			return true
		}
		if driving.SlowYield(timedYield()) {
			return e.seat.take(driving.Seat.Wait)
		}
	}
	return false
}

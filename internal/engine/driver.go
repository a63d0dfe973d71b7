package engine

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gorovod/gorovod/internal/timeline"
	"github.com/gorovod/gorovod/internal/transport"
)

// Polls without progress before the driver sleeps: where each rank has a core
// of its own, long enough to outlast a peer's scheduling hiccup; where ranks
// share cores, some turns given away, which are cheaper than a sleep and the
// call that ends it, also when nobody takes them.
const (
	spinPolls   = 2000
	politePolls = 100 // after so many the core is offered to others while spinning
	yieldPolls  = 100
	// polledPolls are those of an operation that nobody rings for, which makes progress only
	// when it is polled; all its members have begun it, so it is not long to wait.
	polledPolls = 20000
	// stalledPolls are those between two looks at how long such an operation has taken: where cores are
	// shared with other programs each poll may take as long as all of these may run.
	stalledPolls = 16
)

// After longWait in vain the driver makes wearyPolls before it sleeps again: what comes then rings,
// and the first poll finds it. Waiting for a rank that comes late is to take no processor time.
const (
	longWait   = 20 * time.Millisecond
	wearyPolls = 50
)

// polledSleep is how often such an operation is polled that has taken longer.
const polledSleep = 100 * time.Microsecond

// maxSleep bounds how long the driver sleeps before it looks around again.
const maxSleep = 500 * time.Millisecond

// unreadySleep is how often the driver polls the ready functions of operations
// whose input is still being written.
const unreadySleep = 200 * time.Microsecond

// ensureDriver wakes the background goroutine unless somebody drives.
func (e *Engine) ensureDriver() {
	if e.pending.Load() == 0 {
		return
	}
	if !e.role.TryLock() {
		return // the driver looks at pending after it has given up the role
	}
	e.role.Unlock()
	e.Wake()
}

// leaveRole gives up the drive lock, and sees to it that somebody drives on, or
// looks at what has come after the last look.
func (e *Engine) leaveRole() {
	e.role.Unlock()
	if noting {
		e.notes.add("seat", "leaves"+e.notes.facts(fact{"pending", e.pending.Load() > 0}, fact{"woken", e.woken.Load()},
			fact{"wanted", e.wanted.Load() > 0}, fact{"closing", e.closing.Load()}), "free")
	}
	if (e.pending.Load() > 0 || e.woken.Load()) && e.wanted.Load() == 0 && !e.closing.Load() {
		e.Wake()
	}
}

// drive makes progress until en is done (for nil, after Shutdown has begun: until
// every log is drained), the deadline has passed (zero: none), or somebody needs
// the role. The caller holds the role.
func (e *Engine) drive(en *Entry, deadline time.Time) {
	defer e.abortOnPanic()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	polls := 0
	if en != nil && en.tiring.Load() {
		polls = e.weary()
	}
	if noting {
		e.notes.add(driverNote(en), "begins"+e.notes.facts(fact{"tired", polls > 0},
			fact{"deadline", !deadline.IsZero()}), "look")
	}
	for {
		worked := e.progress()
		if e.enough(en) {
			if noting {
				e.notes.add(driverNote(en), "over", "hand over")
			}
			return
		}
		if worked {
			if noting {
				e.noteLook(driverNote(en), true, "poll")
			}
			polls = 0
			continue
		}
		polls++
		again := e.spin(polls)
		if noting {
			e.noteLook(driverNote(en), false, spinNote(again, e.gave))
		}
		if again {
			if polls%128 == 0 && !deadline.IsZero() && !time.Now().Before(deadline) {
				if noting {
					e.notes.add(driverNote(en), "late", "hand over")
				}
				return
			}
			continue
		}
		d := maxSleep
		if !deadline.IsZero() {
			if d = min(d, time.Until(deadline)); d <= 0 {
				if noting {
					e.notes.add(driverNote(en), "late", "hand over")
				}
				return
			}
		}
		asleep := time.Now()
		e.sleep(en, d)
		if noting {
			e.notes.add(driverNote(en), fmt.Sprint("woke after=", time.Since(asleep).Round(time.Microsecond)), "look")
		}
		polls = 0
		if !e.opts.Spin || time.Since(asleep) >= longWait {
			polls = e.weary()
		}
	}
}

// weary is the number of polls after which few are left before sleep.
func (e *Engine) weary() int {
	if e.opts.Spin {
		return spinPolls - wearyPolls
	}
	return yieldPolls - wearyPolls
}

// abortOnPanic, deferred by who drives, makes an abort of a panic.
func (e *Engine) abortOnPanic() {
	if p := recover(); p != nil {
		cause := e.catch(p)
		e.net.Abort(cause)
		e.fail(e.aborted(cause))
	}
}

// spin reports whether to poll once more, after so many polls without progress,
// instead of sleeping. It gives the core away at times.
func (e *Engine) spin(polls int) bool {
	if noting {
		e.gave = false
	}
	if e.polled() && polls < polledPolls {
		if polls >= politePolls || !e.opts.Spin {
			e.giveAway()
		}
		if polls%stalledPolls == 0 {
			e.checkStall()
		}
		return true
	}
	if !e.opts.Spin {
		if polls < yieldPolls {
			e.giveAway()
			return true
		}
		return false
	}
	if polls >= politePolls && polls%8 == 0 {
		e.giveAway()
	}
	return polls < spinPolls
}

// giveAway yields, and notes it.
func (e *Engine) giveAway() {
	if noting {
		e.gave = true
	}
	yield()
}

// sleep waits for the bell, at most d, unless there is something to do now. en is
// what the driver waits for, nil for nothing.
func (e *Engine) sleep(en *Entry, d time.Duration) {
	d = min(d, e.nextLook())
	if noting {
		actor := driverNote(en)
		if e.dozing.Load() {
			actor = "aside"
		}
		e.noteSleep(actor, fmt.Sprint("sleep ", d.Round(time.Microsecond)))
	}
	ticket := e.arm()
	if e.progress() || e.enough(en) || en == nil && e.claims.Load() > 0 {
		e.bell.Disarm()
		if noting {
			e.notes.add("bell", "armed, and there was something", "disarm")
		}
		return
	}
	e.bell.Sleep(ticket, d)
	e.clock.stale.Store(true)
	e.counters.WakeUps.Add(1)
	e.checkShared()
	e.checkStall()
}

// arm is the bell's Arm, or ArmAmid.
func (e *Engine) arm() (ticket uint32) {
	if b, ok := e.bell.(transport.AmidBell); ok && e.amid() {
		return b.ArmAmid()
	}
	return e.bell.Arm()
}

// amid reports whether every lane has begun a collective that has not ended, so that nothing more begins.
func (e *Engine) amid() bool {
	for _, l := range *e.lanes.Load() {
		if !l.removed && l.current.op == nil {
			return false
		}
	}
	return true
}

// enough reports whether the driver's purpose is reached.
func (e *Engine) enough(en *Entry) bool {
	if e.failure.Load() != nil {
		return true
	}
	if en != nil {
		return en.Done() || e.wanted.Load() > 0
	}
	if e.closing.Load() && e.wanted.Load() == 0 {
		return e.drained()
	}
	return e.pending.Load() == 0 || e.wanted.Load() > 0
}

// progress does what can be done in every lane, and reports whether it did anything.
func (e *Engine) progress() bool {
	if e.failure.Load() != nil {
		return false
	}
	if err := e.net.Err(); err != nil {
		e.fail(e.aborted(err))
		return true
	}
	if e.woken.Load() {
		e.woken.Store(false) // before looking: what it was for is there
	}
	worked := false
	for _, l := range *e.lanes.Load() {
		if l.removed {
			continue
		}
		if l.progress() {
			worked = true
		}
		if e.failure.Load() != nil {
			return true
		}
	}
	if e.world.shut && !worked && !e.closing.Load() && e.drained() {
		e.fail(errLeft)
		return true
	}
	return worked
}

// polled reports that an operation is under way that nobody rings for.
func (e *Engine) polled() bool {
	if e.opts.Carrier == nil {
		return false
	}
	for _, l := range *e.lanes.Load() {
		if l.current.op != nil && l.run.Polled() {
			return true
		}
	}
	return false
}

// nextLook is when the driver must look again although nobody rings: for inputs
// that are not ready, and for batches that are held back.
func (e *Engine) nextLook() time.Duration {
	d := maxSleep
	if e.polled() {
		d = polledSleep
	}
	for _, l := range *e.lanes.Load() {
		if l.isBehind() {
			d = min(d, unreadySleep)
		}
		if l.observes() {
			d = min(d, timeline.LookEvery)
		}
		if h := l.heldBack(); h > 0 {
			d = min(d, h)
		}
	}
	return d
}

// checkShared looks, about once a second, whether it is for a damage of what ranks share
// that this one waits. The driver calls it when it has slept.
func (e *Engine) checkShared() {
	n, ok := e.net.(transport.Verified)
	if !ok || e.pending.Load() == 0 {
		return
	}
	if now := time.Now(); now.Sub(e.verified) >= maxSleep {
		e.verified = now
		if err := n.Verify(); err != nil {
			e.net.Abort(fmt.Errorf("%s: %w", e.opts.Describe(e.opts.Rank), err))
		}
	}
}

// checkStall tells the stall inspector how long the oldest operation has been
// pending, about once a second. The driver calls it when it has slept, or polled for long.
func (e *Engine) checkStall() {
	if e.opts.Stalled == nil {
		return
	}
	now := time.Now()
	if now.Sub(e.stallChecked) < maxSleep {
		return
	}
	e.stallChecked = now
	var oldest time.Duration
	for _, w := range e.Waiting() {
		oldest = max(oldest, now.Sub(w.Since))
	}
	if oldest >= maxSleep {
		e.opts.Stalled(oldest)
	}
}

package engine

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gorovod/gorovod/internal/core/driving"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/timeline"
)

// inspectEvery is the time between two checks of a waiting driver: for damage to the memory that the ranks share, and
// for operations that do not end.
const inspectEvery = 500 * time.Millisecond

// ensureDriver finds a driver unless somebody drives.
func (e *Engine) ensureDriver() {
	if next := e.seat.now().Next(); next != driving.Nobody {
		e.findDriver(next)
	}
}

// leaveSeat gives up the seat, and finds the next driver if something is still to be done.
func (e *Engine) leaveSeat() {
	after := e.seat.leave()
	e.noteLeaves(after)
	if next := after.Next(); next != driving.Nobody {
		e.findDriver(next)
	}
}

// findDriver wakes the next driver.
func (e *Engine) findDriver(next driving.Successor) {
	if next != driving.WakeParked || !e.wakeNext() {
		e.Wake()
	}
}

// drive makes progress until en is done, t has come to its end, or another thread needs the seat. With a nil en,
// after Shutdown has begun, it makes progress until every log is drained. The caller has the seat.
func (e *Engine) drive(en *Entry, t *timeout) {
	defer e.abortOnPanic()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	d := e.job.Begin(en != nil && en.tiring.Load(), &e.cores)
	e.noteBegin(en, &d)
	for {
		worked := e.progress()
		if e.enough(en) {
			if worked {
				d.Worked()
			}
			e.noteOver(en, worked)
			return
		}
		if worked {
			action := d.Worked()
			e.noteWorked(actor(en), action)
			if action == driving.Glance {
				now := thisMoment()
				if d.Checked(t.left(now)) == driving.HandOver {
					e.noteLate(en)
					return
				}
				e.checkStall(now)
			}
			continue
		}
		polled, bulk := e.polled(), e.bulk != nil && e.bulk.Bulk()
		action := d.Nothing(polled, bulk)
		e.noteNothing(actor(en), polled, bulk, action)
		switch action {
		case driving.Yield:
			e.offerCore(actor(en))
		case driving.Check, driving.Rest:
			now := thisMoment()
			if d.Checked(t.left(now)) == driving.HandOver {
				e.noteLate(en)
				return
			}
			if action == driving.Check {
				e.offerCore(actor(en))
				e.checkStall(now)
				continue
			}
			e.sleep(en, t.left(now))
			after := thisMoment().since(now)
			e.noteWoke(en, after)
			d.Woke(after)
		}
	}
}

// offerCore gives the driver's core away, and lets the policy know for how long. The caller has the seat.
func (e *Engine) offerCore(actor string) {
	took := timedYield()
	if e.cores.Yielded(took) {
		e.noteSlowYield(actor, took)
	}
}

// timedYield gives the core away, and returns for how long.
func timedYield() time.Duration {
	before := thisMoment()
	yield()
	return thisMoment().since(before)
}

// abortOnPanic turns a driver's panic into an abort. Each driver defers it.
func (e *Engine) abortOnPanic() {
	if p := recover(); p != nil {
		cause := e.catch(p)
		e.net.Abort(cause)
		e.fail(e.aborted(cause))
	}
}

// sleep waits for the bell for as long as the policy says, unless there is something to do now. en is the operation
// that the driver waits for, nil for none; left is the time until its deadline. It arms the bell before it looks and
// lists the facts: what comes later rings, such as an operation whose input nobody announces.
func (e *Engine) sleep(en *Entry, left time.Duration) {
	ticket := e.arm()
	worked := e.progress()
	if now := e.seat.now(); worked || e.enough(en) || now.Dozing() && now.Sought() {
		e.bell.Disarm()
		e.noteDisarm()
		return
	}
	f := e.facts()
	d := driving.Sleep(left, f)
	e.noteSleep(en, f, d)
	e.bell.Sleep(ticket, d)
	e.clock.stale.Store(true)
	e.counters.WakeUps.Add(1)
	now := thisMoment()
	e.checkShared(now)
	e.checkStall(now)
}

// arm arms the bell. If a collective is under way in every lane, it calls ArmAmid where the bell has that.
func (e *Engine) arm() (ticket uint32) {
	if b, ok := e.bell.(transport.AmidBell); ok && e.allMidway() {
		return b.ArmAmid()
	}
	return e.bell.Arm()
}

// allMidway reports whether a collective is under way in every lane. Then no lane can begin another one. AddSet rings
// for the lane that it adds.
func (e *Engine) allMidway() bool {
	for _, l := range *e.lanes.Load() {
		if !l.removed && l.current.op == nil {
			return false
		}
	}
	return true
}

// enough reports whether the driver can stop: the engine has failed, its operation has ended, or another thread needs
// the seat. A driver without an operation can stop when nothing is pending, or, after Shutdown has begun, when every
// log is drained.
func (e *Engine) enough(en *Entry) bool {
	if e.failure.Load() != nil {
		return true
	}
	s := e.seat.now()
	if en != nil {
		return en.Done() || s.Wanted()
	}
	if s.Closing() && !s.Wanted() {
		return e.drained()
	}
	return s.Pending() == 0 || s.Wanted()
}

// progress does in every lane all that can be done now, and reports whether it did anything.
func (e *Engine) progress() bool {
	if e.failure.Load() != nil {
		return false
	}
	look := e.look.Load()
	if e.poller != nil {
		e.poller.Poll()
	}
	if err := e.net.Err(); err != nil {
		e.fail(e.aborted(err))
		return true
	}
	if e.seat.now().News() {
		e.seat.change(driving.Seat.Looks) // before it looks, so that no later news is lost
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
	if e.world.shut && !e.keepsSets.Load() && !worked && !e.seat.now().Closing() && e.drained() && e.settled() {
		e.fail(errLeft)
		return true
	}
	if look != nil && (!worked || e.Pending() == 0) {
		e.looked(look)
	}
	return worked
}

// polled reports whether an operation is under way for which nobody rings. Then the driver must poll.
func (e *Engine) polled() bool {
	if !e.polls {
		return false
	}
	for _, l := range *e.lanes.Load() {
		if l.current.op != nil && l.current.polled {
			return true
		}
	}
	return false
}

// facts lists the limits of the driver's sleep. Nobody rings when an input becomes ready, or when a batch has been held
// back for long enough.
func (e *Engine) facts() driving.Facts {
	f := driving.Facts{Polled: e.polled()}
	for _, l := range *e.lanes.Load() {
		f.Behind = f.Behind || l.isBehind()
		if l.observes() {
			f.Until(timeline.LookEvery)
		}
		if h := l.heldBack(); h > 0 {
			f.Until(h)
		}
	}
	return f
}

// checkShared calls Verify about twice a second, because a damaged segment otherwise looks like a slow peer. The driver
// calls it after a sleep, as does each thread that takes the seat for a step or after a nap.
func (e *Engine) checkShared(now moment) {
	n, ok := e.net.(transport.Verified)
	if !ok || e.seat.now().Pending() == 0 {
		return
	}
	if now.since(e.verified) >= inspectEvery {
		e.verified = now
		e.verify(n)
	}
}

// verify aborts the network if the memory which its ranks share is damaged.
func (e *Engine) verify(n transport.Verified) {
	if err := n.Verify(); err != nil {
		e.net.Abort(fmt.Errorf("%s: %w", e.opts.Describe(e.opts.Rank), err))
	}
}

// checkStall tells the stall inspector, about twice a second, how long the oldest operation has been pending. The
// driver calls it after a sleep, and while it polls for long or other threads keep it at work. Each thread that takes
// the seat for a step or after a nap calls it, too.
func (e *Engine) checkStall(now moment) {
	if e.opts.Stalled == nil || now.since(e.stallChecked) < inspectEvery {
		return
	}
	e.stallChecked = now
	var oldest time.Duration
	for _, w := range e.Waiting() {
		if !w.Refused {
			oldest = max(oldest, now.time().Sub(w.Since))
		}
	}
	if oldest >= inspectEvery {
		e.opts.Stalled(oldest)
	}
}

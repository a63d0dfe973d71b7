// Package driving decides how the thread that drives an engine goes on after each look: poll again, give the core away,
// sleep, or let another thread drive. It is a pure policy: events and times go in, actions come out. It starts no
// goroutine, takes no lock, reads no clock and calls no transport. Package engine asks it, and does what it says.
//
// Who drives is in Seat. One thread at a time has the seat:
//
//	             a waiter, a polling        Shutdown wants it: whoever
//	             program, Shutdown          has the seat hands it over
//	         ┌──────── takes ───────┐    ┌────────────────────────────┐
//	         │                      ▼    │                            ▼
//	       FREE ◀──── leaves ──── WAITER ┘                   SHUTDOWN drives last
//	       │  ▲
//	kicked,│  │leaves: nothing is pending, a waiter claims
//	napped │  │the seat or is parked, or it is time for a nap
//	       ▼  │
//	     BACKGROUND ── nothing to do for long ──▶ DOZING (on the bell)
//	          ▲                                     │
//	          └───── a ring, or a waiter's claim ───┘
//
// Who drives next: a thread that leaves the seat while something is pending wakes the waiter that has been parked for
// longest. If none is parked, it kicks the background goroutine. A waiter that finds the background goroutine in the
// seat claims it. A waiter that finds another waiter there, or that claims the seat for long, parks: it sleeps until
// its operation has ended, or until it is woken to drive.
//
// How a thread drives for its own operation is in Driver, and how the background goroutine does is in Background. Both
// sleep earlier while other programs want the cores, see Contention:
//
//	             worked: POLL … GLANCE               found nothing
//	          ┌───────────┐             ┌──────────────────────────────────┐
//	          ▼           │             ▼                                  │
//	begin ─▶ LOOK ────────┴──▶ POLL … YIELD … CHECK ──▶ REST ──▶ SLEEP ────┘   Driver
//	          │                                 │         │  a ring, or time
//	          └─ its operation has ended        └─ late ──┴──▶ HAND OVER (after GLANCE, too)
//
//	kicked ─▶ NAP ─▶ LOOK … POLL, YIELD, CHECK ──▶ HAND OVER ─▶ NAP (longer) ─▶ LOOK …     Background
//	                  ▲                   │
//	                  └──── SLEEP ◀───────┘ after naps for dozeAfter without any progress, or
//	                                        during a collective
//
// What may block is in a table of DESIGN.md. Of the states above, threads wait in SLEEP (on the rank's bell), in NAP
// (the background goroutine without the seat), while they are parked, and in Shutdown until it has the seat.
package driving

import "time"

// Job describes the job of an engine. It does not change while the engine lives.
type Job struct {
	Spin       bool // each rank has a core of its own
	SpareCores bool // each rank has two cores: the program and the background goroutine do not share one
	OneHost    bool // all ranks are on this host
}

// crowded reports whether each look takes a core from a program for which other ranks wait, while no message can come
// from another host.
func (j Job) crowded() bool { return j.OneHost && !j.SpareCores }

// Action is how a driver goes on.
type Action uint8

// The actions of a driver.
const (
	Poll     Action = iota // look again at once
	Yield                  // give the core away, then look again
	Check                  // give the core away and look at the clock: Checked says how to go on
	Glance                 // look at the clock, and keep the core: Checked says how to go on
	Rest                   // sleep on the bell for as long as Sleep says
	HandOver               // leave the seat
)

var actions = [...]string{"poll", "yield", "check", "glance", "rest", "hand over"}

func (a Action) String() string { return actions[a] }

// Facts limit a sleep: they are about events for which nobody rings.
type Facts struct {
	Polled bool          // an operation is under way that makes progress only when it is polled
	Behind bool          // something is still to be announced: its input is not ready, or the board is full
	Within time.Duration // something is to be done after this time; 0 for nothing
}

const (
	// maxSleep is the longest sleep of a driver. It bounds how late a driver sees an event for which nobody rings.
	maxSleep = 500 * time.Millisecond
	// polledSleep is for operations that need polls. After polledPolls looks another 0.1 ms adds little.
	polledSleep = 100 * time.Microsecond
	// unreadySleep is for operations whose input is still being written, for example by a GPU: the driver polls their
	// ready functions.
	unreadySleep = 200 * time.Microsecond
)

// Sleep returns how long to sleep on the bell. left is the time until the caller's deadline.
func Sleep(left time.Duration, f Facts) time.Duration {
	d := min(maxSleep, left)
	if f.Polled {
		d = min(d, polledSleep)
	}
	if f.Behind {
		d = min(d, unreadySleep)
	}
	if f.Within > 0 {
		d = min(d, f.Within)
	}
	return d
}

// Until notes that something is to be done after d.
func (f *Facts) Until(d time.Duration) {
	if f.Within == 0 || d < f.Within {
		f.Within = d
	}
}

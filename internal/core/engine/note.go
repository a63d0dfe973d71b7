package engine

import (
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/core/driving"
)

// These functions write down what drivers see and do, in builds with notes; in other builds they are empty. A line
// reads "actor: event facts -> action". internal/core/driving/testdata/jobs has such notes.

// fact is part of a note: something on which a driver's decision depends.
type fact struct {
	name  string
	value any
}

// actor names the thread that drives for en.
func actor(en *Entry) string {
	if en != nil {
		return "wait"
	}
	return "shutdown"
}

func (e *Engine) noteBegin(en *Entry, d *driving.Driver) {
	if noting {
		e.notes.add(actor(en), "begins"+e.notes.facts(fact{"tired", *d != e.job.Begin(false, &e.cores)}), "look")
	}
}

func (e *Engine) noteWorked(actor string, a driving.Action) {
	if noting {
		e.notes.add(actor, "worked", a.String())
	}
}

func (e *Engine) noteNothing(actor string, polled, bulk bool, a driving.Action) {
	if noting {
		e.notes.add(actor, "nothing"+e.notes.facts(fact{"polled", polled}, fact{"bulk", bulk}), a.String())
	}
}

func (e *Engine) noteSlowYield(actor string, took time.Duration) {
	if noting {
		e.notes.add(actor, fmt.Sprint("yielded after=", took.Round(time.Microsecond)), "look")
	}
}

func (e *Engine) noteOver(en *Entry, worked bool) {
	if noting {
		e.notes.add(actor(en), "over"+e.notes.facts(fact{"worked", worked}), "hand over")
	}
}

func (e *Engine) noteLate(en *Entry) {
	if noting {
		e.notes.add(actor(en), "late", "hand over")
	}
}

func (e *Engine) noteSleep(en *Entry, f driving.Facts, d time.Duration) {
	if noting {
		who := actor(en)
		if e.seat.now().Dozing() {
			who = "aside"
		}
		e.notes.add(who, "rest"+e.notes.facts(fact{"polled", f.Polled}, fact{"behind", f.Behind},
			fact{"observes", f.Within > 0}), fmt.Sprint("sleep ", d.Round(time.Microsecond)))
	}
}

func (e *Engine) noteDisarm() {
	if noting {
		e.notes.add("bell", "armed, and there was something", "disarm")
	}
}

func (e *Engine) noteWoke(en *Entry, after time.Duration) {
	if noting {
		e.notes.add(actor(en), fmt.Sprint("woke after=", after.Round(time.Microsecond)), "look")
	}
}

func (e *Engine) noteNap(d time.Duration) {
	if noting {
		e.notes.add("aside", "stays away", fmt.Sprint("nap ", d))
	}
}

func (e *Engine) noteReturn() {
	if noting {
		e.notes.add("aside", "returns", "leaves it to others")
	}
}

func (e *Engine) noteBeginAside(b *driving.Background) {
	if noting {
		e.notes.add("aside", "begins"+e.notes.facts(fact{"patient", !b.Dozes()}), "look")
	}
}

func (e *Engine) noteNothingAside(midway, polled bool, m driving.Mood, a driving.Action) {
	if noting {
		e.notes.add("aside", "nothing"+e.notes.facts(fact{"polled", polled}, fact{"midway", midway},
			fact{"lazy", m.Lazy}, fact{"spinning", m.Spinning}), a.String())
	}
}

func (e *Engine) noteOverAside(worked bool) {
	if noting {
		e.notes.add("aside", "over"+e.notes.facts(fact{"worked", worked}), "hand over")
	}
}

func (e *Engine) noteWokeAside() {
	if noting {
		e.notes.add("aside", "woke", "look")
	}
}

func (e *Engine) noteLeft(b *driving.Background, midway bool, m driving.Mood, s driving.Seat) {
	if noting {
		e.notes.add("aside", "left"+e.notes.facts(fact{"moved", b.Moved()}, fact{"midway", midway},
			fact{"lazy", m.Lazy}, fact{"spinning", m.Spinning}, fact{"pending", s.Pending() > 0},
			fact{"news", s.News()}, fact{"parked", s.Parked()}, fact{"wanted", s.Wanted()},
			fact{"closing", s.Closing()}), frees(s))
	}
}

// frees is what the background goroutine does with the seat that it leaves: it kicks nobody.
func frees(after driving.Seat) string {
	if next := after.Next(); next == driving.WakeParked {
		return next.String()
	}
	return "free"
}

func (e *Engine) noteAsked() {
	if noting {
		e.notes.add("seat", "asked", "step")
	}
}

func (e *Engine) noteSeat(event, action string) {
	if noting {
		e.noteSeatAt(e.seat.now(), event, action)
	}
}

// noteLeaves notes that a thread has left the seat, and whom it makes the next driver.
func (e *Engine) noteLeaves(after driving.Seat) {
	if noting {
		e.noteSeatAt(after, "leaves", after.Next().String())
	}
}

// noteFinds notes that a waiter has not got the seat.
func (e *Engine) noteFinds(now driving.Seat) {
	if noting {
		action := "park"
		if now.Aside() {
			action = "claim"
		}
		e.noteSeatAt(now, "found", action)
	}
}

func (e *Engine) noteSeatAt(s driving.Seat, event, action string) {
	e.notes.add("seat", event+e.notes.facts(fact{"aside", s.Aside()}, fact{"dozing", s.Dozing()},
		fact{"taken", !s.Free()}, fact{"pending", s.Pending() > 0}, fact{"news", s.News()},
		fact{"parked", s.Parked()}, fact{"wanted", s.Wanted()}, fact{"closing", s.Closing()}), action)
}

func (e *Engine) saveNotes() {
	if noting {
		e.notes.save(&e.opts)
	}
}

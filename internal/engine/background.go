package engine

import (
	"fmt"
	"runtime/debug"
	"time"
)

// The background goroutine works when nobody waits, so it is in no hurry: it
// lets submissions gather before it looks, and where it finds nothing to do it
// stays away for longer and longer instead of polling on a core that the program
// computes on. In the end it sleeps on the bell.
const (
	gatherTime = 100 * time.Microsecond
	maxNap     = 200 * time.Microsecond
	patience   = 2 * time.Millisecond // of naps without any progress, before the bell

	// Each look takes a core from a program that has said that it will come for its results, and computes until then.
	// With naps of 2 to 4 ms, training on twice as many ranks as cores switched 210 times a step and rank; with these
	// 170, and took some 3 % less time.
	lazyGather = 10 * time.Millisecond
	lazyNap    = 40 * time.Millisecond
	// Amid a collective the other ranks may be computing, too. A large one has many steps, so this one is short.
	lazyMidway = 2 * time.Millisecond
)

// lazy reports whether looking can wait: there are no cores to spare, nothing is on the way
// from other hosts meanwhile, nobody is to be told of an end, and nobody keeps asking for it.
func (e *Engine) lazy() bool {
	return e.opts.OneHost && !e.opts.SpareCores && e.tells.Load() == 0 && !e.asking()
}

// rest is how long the background goroutine stays away after a look: the first time, at most, and amid a collective.
func (e *Engine) rest() (first, most, midway time.Duration) {
	switch {
	case e.lazy():
		return lazyGather, lazyNap, lazyMidway
	case e.spinning():
		return spinningNap, spinningNap, spinningNap
	}
	return gatherTime, maxNap, gatherTime
}

// tell notes that somebody is to be told of an operation's end, until told; the background goroutine is not lazy then.
func (e *Engine) tell() {
	if e.tells.Add(1) == 1 {
		e.endNap()
	}
}

// endNap has the background goroutine look again, now that it is not lazy.
func (e *Engine) endNap() {
	select {
	case e.hurry <- struct{}{}:
	default:
	}
}

// told is called when the callback of an operation that tells has been started.
func (e *Engine) told() { e.tells.Add(-1) }

// nap sleeps for d, or until an operation comes that tells.
func (e *Engine) nap(d time.Duration) {
	e.napping.Reset(d)
	select {
	case <-e.napping.C:
	case <-e.hurry:
		e.napping.Stop()
		if first, _, _ := e.rest(); first < d {
			time.Sleep(first)
		}
	}
}

// takeOverTries bounds how often a waiter tries to get the drive lock from the
// background goroutine before it leaves the work to it.
const takeOverTries = 200

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

// attend drives until nothing is pending, or somebody else drives: leaveRole sees
// to it that this one goes on afterwards.
func (e *Engine) attend() {
	nap, _, _ := e.rest()
	idle := time.Duration(0)
	for {
		if noting {
			e.notes.add("aside", "stays away", fmt.Sprint("nap ", nap))
		}
		e.nap(nap)
		if e.wanted.Load() > 0 || e.pending.Load() == 0 && !e.woken.Load() || !e.role.TryLock() {
			if noting {
				e.notes.add("aside", "returns", "leaves it to others")
			}
			return
		}
		e.aside.Store(true)
		moved := e.driveAside(idle >= patience && !e.spinning())
		midway := e.midway()
		e.aside.Store(false)
		e.role.Unlock()
		first, most, amid := e.rest()
		if noting {
			e.notes.add("aside", "left"+e.notes.facts(fact{"moved", moved}, fact{"midway", midway},
				fact{"lazy", e.lazy()}, fact{"spinning", e.spinning()}, fact{"pending", e.pending.Load() > 0},
				fact{"wanted", e.wanted.Load() > 0}, fact{"closing", e.closing.Load()}), "free")
		}
		switch {
		case e.pending.Load() == 0 || e.wanted.Load() > 0 || e.closing.Load():
			return
		case moved && midway:
			nap, idle = amid, 0
		case moved:
			nap, idle = first, 0
		default:
			idle += nap
			if nap = min(2*nap, most); midway {
				nap = amid
			}
		}
	}
}

// driveAside makes progress while there is some to make, or a collective is under
// way, and nobody else needs the role. If it is lazy, it leaves one for a while, too, that is
// under way as slowly as the others' programs let them work for it. With doze it sleeps on the bell if it finds
// nothing to do. It reports whether it is worth looking again soon. The caller
// holds the role.
func (e *Engine) driveAside(doze bool) bool {
	defer e.abortOnPanic()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	moved, polls := false, 0
	if noting {
		e.notes.add("aside", "begins"+e.notes.facts(fact{"patient", !doze}), "look")
	}
	for {
		worked := e.progress()
		moved = moved || worked
		if e.failure.Load() != nil || e.pending.Load() == 0 || e.wanted.Load() > 0 || e.claims.Load() > 0 {
			if noting {
				e.notes.add("aside", "over"+e.notes.facts(fact{"worked", worked}), "hand over")
			}
			return moved
		}
		switch {
		case worked:
			if noting {
				e.noteLook("aside", true, "poll")
			}
			polls = 0
		case e.midway():
			polls++
			again := e.spinAside(polls)
			if noting {
				action := spinNote(again, e.gave)
				if !again && (e.lazy() && !doze || e.spinning()) {
					action = "hand over"
				}
				e.noteLook("aside", false, action)
			}
			if again {
				continue
			}
			if e.lazy() && !doze || e.spinning() {
				return moved
			}
			e.doze()
			moved, polls = true, 0
		case doze && !moved:
			if noting {
				e.noteLook("aside", false, "rest")
			}
			e.doze()
			moved = true
		default:
			if noting {
				e.noteLook("aside", false, "hand over")
			}
			return moved
		}
	}
}

// spinAside is spin for the background goroutine. Where it is lazy, polling would take a core
// from the program, here or on another rank, which is what it waits for.
func (e *Engine) spinAside(polls int) bool {
	if noting {
		e.gave = false
	}
	if e.lazy() && !e.polled() {
		return polls < politePolls
	}
	return e.spin(polls)
}

// doze sleeps on the bell, from which a waiter may wake it. The caller holds the role.
func (e *Engine) doze() {
	e.dozing.Store(true)
	e.sleep(nil, maxSleep)
	e.dozing.Store(false)
	if noting {
		e.notes.add("aside", "woke", "look")
	}
}

// midway reports whether a collective has begun and not ended: other members work
// for it now. The caller holds the role.
func (e *Engine) midway() bool {
	for _, l := range *e.lanes.Load() {
		if l.current.op != nil {
			return true
		}
	}
	return false
}

// takeOver gets the role for a waiter if the background goroutine has it and
// gives it up at once. It does not where it is amid a long step.
func (e *Engine) takeOver() bool {
	if !e.aside.Load() {
		if noting {
			e.notes.add("seat", "waiter finds another waiter", "park")
		}
		return false
	}
	if noting {
		e.notes.add("seat", "waiter finds the background"+e.notes.facts(fact{"dozing", e.dozing.Load()}), "claim")
	}
	e.claims.Add(1)
	defer e.claims.Add(-1)
	if e.dozing.Load() {
		e.ring()
	}
	for range takeOverTries {
		if e.wanted.Load() > 0 {
			return false
		}
		if e.role.TryLock() {
			return true
		}
		yield()
	}
	return false
}

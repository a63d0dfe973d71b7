package engine

import (
	"slices"
	"sync"
	"sync/atomic"
)

// departure says that another rank has left: it has closed the log of the world, which ends this Engine. That rank is
// the one cause for all process sets, whichever rank closed a set's own log. After KeepSets, each lane has a departure
// of its own: the closing of its own log.
type departure struct {
	rank int // the first to leave
	once sync.Once
	told atomic.Pointer[Error] // set once some operation has failed for it
}

// errLeft stands for the error after a departure, until an operation needs the words.
var errLeft = &Error{UnknownError, shutDownText}

// KeepSets changes what a departure ends: only the world, and the process sets that contain the rank that has left.
// This Engine then lasts until Shutdown or an abort. All ranks call KeepSets before any of them leaves.
func (e *Engine) KeepSets() { e.keepsSets.Store(true) }

// KeepsSets reports whether KeepSets has been called.
func (e *Engine) KeepsSets() bool { return e.keepsSets.Load() }

// Shares reports whether an open process set of this rank has the other rank, too. After KeepSets that is false once
// the other rank has left, as far as this rank has heard, and after the end of this Engine.
func (e *Engine) Shares(rank int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failure.Load() != nil {
		return false // the boards may be gone
	}
	return slices.ContainsFunc(*e.lanes.Load(), func(l *lane) bool {
		return !l.removed && l.board.ClosedBy() < 0 && l.member(rank) >= 0
	})
}

// decisive is the lane whose log says which departure ends l.
func (l *lane) decisive() *lane {
	if l.engine.keepsSets.Load() {
		return l
	}
	return l.engine.world
}

// left reports whether a rank has closed the log of l, and notes which one. The driver calls it. Before the engine
// ends, a caller that holds mu may call it, too.
func (l *lane) left() bool {
	by := l.board.ClosedBy()
	if by < 0 {
		return false
	}
	l.departure.CompareAndSwap(nil, &departure{rank: l.members[by]})
	return true
}

// words replaces f by the error for a caller whose operation in l fails. doing is what this rank was doing, as
// occupation says it. words may block for a moment, to ask how the rank that left has ended.
func (l *lane) words(f *Error, doing string) *Error {
	e := l.engine
	if f == e.abort.Load() {
		e.NoteVictim()
		return f
	}
	d := l.decisive().departure.Load()
	if f != errLeft || d == nil {
		return f
	}
	d.once.Do(func() {
		view := e.viewOf(doing)
		reason := LeftText(e.opts.Describe(d.rank)+" has shut down") + view
		if e.opts.Left != nil {
			reason = e.opts.Left(d.rank, view)
		}
		d.told.Store(&Error{UnknownError, reason})
	})
	return d.told.Load()
}

// Departure is the reason for which operations of the world fail after another rank has left. It is nil while no rank
// has left, and after an abort. It may block as long as Options.Left.
func (e *Engine) Departure() *Error {
	if e.firstToLeave() < 0 || e.abort.Load() != nil {
		return nil
	}
	return e.world.words(errLeft, e.occupation())
}

// firstToLeave is the rank that has closed the world's log, -1 while it is open. The caller does not hold mu.
func (e *Engine) firstToLeave() int {
	e.mu.Lock()
	if e.failure.Load() == nil { // else the board may be gone
		e.world.left()
	}
	e.mu.Unlock()
	if d := e.world.departure.Load(); d != nil {
		return d.rank
	}
	return -1
}

package engine

import (
	"sync"
	"sync/atomic"
)

// departure says that another rank has left: it has closed the world's log, which ends this Engine. That rank is the
// one cause for all process sets, whichever rank closed a set's own log.
type departure struct {
	rank int // the first to leave
	once sync.Once
	told atomic.Pointer[Error] // set once some operation has failed for it
}

// errLeft stands for the error after a departure, until an operation needs the words.
var errLeft = &Error{UnknownError, shutDownText}

// left reports whether a rank has closed the world's log, and notes which one. The driver calls it. Before the engine
// ends, a caller that holds mu may call it, too.
func (e *Engine) left() bool {
	rank := e.world.board.ClosedBy()
	if rank < 0 {
		return false
	}
	e.departure.CompareAndSwap(nil, &departure{rank: rank})
	return true
}

// words replaces f by the error for a caller whose operation fails. doing is what this rank was doing, as occupation
// says it. words may block for a moment, to ask how the rank that left has ended.
func (e *Engine) words(f *Error, doing string) *Error {
	if f == e.abort.Load() {
		e.NoteVictim()
		return f
	}
	d := e.departure.Load()
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

// Departure is the reason for which operations fail after another rank has left. It is nil while no rank has left, and
// after an abort. It may block as long as Options.Left.
func (e *Engine) Departure() *Error {
	e.mu.Lock()
	if e.failure.Load() == nil { // else the board may be gone
		e.left()
	}
	e.mu.Unlock()
	if e.departure.Load() == nil || e.abort.Load() != nil {
		return nil
	}
	return e.words(errLeft, e.occupation())
}

package engine

import (
	"sync"
	"sync/atomic"
)

// departure is the end of an Engine by another rank that has left: it has closed the world's log.
// That rank is the one cause for all sets, whichever rank has closed a set's log.
type departure struct {
	rank int // the first to leave
	once sync.Once
	told atomic.Pointer[Error] // set once some operation has failed for it
}

// errLeft stands for what operations are told after a departure, until some operation needs the words.
var errLeft = &Error{UnknownError, shutDownText}

// left notes that the world's log is closed, and reports whether it is. The driver calls it, or who
// holds mu before the end.
func (e *Engine) left() bool {
	rank := e.world.board.ClosedBy()
	if rank < 0 {
		return false
	}
	e.departure.CompareAndSwap(nil, &departure{rank: rank})
	return true
}

// words is f for a caller, whose operation fails. It may ask what the rank that left has come to, and block for a
// moment.
func (e *Engine) words(f *Error) *Error {
	if f == e.abort.Load() {
		e.NoteVictim()
		return f
	}
	d := e.departure.Load()
	if f != errLeft || d == nil {
		return f
	}
	d.once.Do(func() {
		reason := LeftText(e.opts.Describe(d.rank) + " has shut down")
		if e.opts.Left != nil {
			reason = e.opts.Left(d.rank)
		}
		d.told.Store(&Error{UnknownError, reason})
	})
	return d.told.Load()
}

// Departure is why operations fail after another rank has left; nil while none has, and after an abort.
// It may block as long as Options.Left.
func (e *Engine) Departure() *Error {
	e.mu.Lock()
	if e.failure.Load() == nil { // else the board may be gone
		e.left()
	}
	e.mu.Unlock()
	if e.departure.Load() == nil || e.abort.Load() != nil {
		return nil
	}
	return e.words(errLeft)
}

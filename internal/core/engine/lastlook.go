package engine

import "time"

// lastLook is a question to the driver: is there nothing more that it can do?
type lastLook struct{ over chan struct{} }

// LastLook lets the driver do all that it can do now. It returns when a look that began after the call has found
// nothing to do, when no operation is pending, or after limit. Call it before an abort for a rank that is gone. That
// rank may have done all that others need of it, and left it in the segment or in the sockets. Then their operations
// end well.
// The driver and the functions that it calls may not call LastLook.
func (e *Engine) LastLook(limit time.Duration) {
	mine := &lastLook{over: make(chan struct{})}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !e.look.CompareAndSwap(nil, mine) {
		other := e.look.Load()
		if other == nil {
			continue
		}
		select { // the driver may have begun it before this call
		case <-other.over:
		case <-timer.C:
			return
		}
	}
	if e.failure.Load() != nil || e.Pending() == 0 {
		e.looked(mine)
		return
	}
	e.ring() // for a driver that sleeps
	e.Wake() // for there may be none
	select {
	case <-mine.over:
	case <-timer.C:
		e.looked(mine)
	}
}

// looked ends a lastLook, unless somebody else has ended it.
func (e *Engine) looked(look *lastLook) {
	if e.look.CompareAndSwap(look, nil) {
		close(look.over)
	}
}

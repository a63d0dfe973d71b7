package engine

import (
	"errors"
	"fmt"
	"time"
)

// aborted is the Error of an aborted network, the same for every operation of this
// rank: the cause, which is the same on all ranks, and what this rank did when it was
// told. Callable on any goroutine that does not hold mu.
func (e *Engine) aborted(cause error) *Error {
	if f := e.abort.Load(); f != nil {
		return f
	}
	f := &Error{UnknownError, cause.Error() + e.view()}
	var told *Error
	if errors.As(cause, &told) {
		f.Code = told.Code
	} else if e.opts.AfterAbort != "" {
		f.Reason += " " + e.opts.AfterAbort
	}
	if !e.abort.CompareAndSwap(nil, f) {
		return e.abort.Load()
	}
	if e.opts.Failed != nil {
		e.opts.Failed(cause)
	}
	return f
}

// Failure is what the network was aborted for, as operations have it; nil while it
// works, and after a shutdown.
func (e *Engine) Failure() *Error {
	if f := e.abort.Load(); f != nil {
		return f
	}
	if e.failure.Load() == nil {
		if err := e.net.Err(); err != nil {
			return e.aborted(err)
		}
	}
	return nil
}

// view is when this rank was told, and what it was doing: its oldest operation.
func (e *Engine) view() string {
	at := time.Now().UTC().Format("2006-01-02 15:04:05.000")
	var oldest Waiting
	waiting := e.Waiting()
	for _, w := range waiting {
		if oldest.Name == "" || w.Agreed && !oldest.Agreed || w.Agreed == oldest.Agreed && w.Since.Before(oldest.Since) {
			oldest = w
		}
	}
	if len(waiting) == 0 {
		return fmt.Sprintf(" [%s UTC]", at)
	}
	phase := "waited for other ranks"
	switch {
	case oldest.Agreed:
		phase = "was being executed"
	case oldest.Unready:
		phase = "waited for its input"
	}
	return fmt.Sprintf(" [%s UTC; here %s %q %s]", at, oldest.Op, oldest.Name, phase)
}

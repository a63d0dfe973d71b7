package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// aborted is the Error of an aborted network: the cause, and the view of the rank that told it first. It is the same
// for every operation of this rank, and of all ranks if Agree can reach them. Any goroutine that does not hold mu may
// call aborted.
func (e *Engine) aborted(cause error) *Error {
	if f := e.abort.Load(); f != nil {
		return f
	}
	text := cause.Error()
	if told := (*transport.Report)(nil); errors.As(cause, &told) {
		text = told.Text
	}
	view := e.view()
	f := &Error{UnknownError, text + view}
	if e.opts.Agree != nil {
		f.Reason = e.opts.Agree(text, view)
	}
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

// noticed is aborted for a caller that does not drive. If the network needs turns, it wakes the background goroutine,
// so that the network gets a turn and passes the abort on although nobody may drive.
func (e *Engine) noticed(cause error) *Error {
	if e.poller != nil {
		e.Wake()
	}
	return e.aborted(cause)
}

// NoteVictim calls Options.Victim once, when an operation of this rank fails because the network was aborted. The
// engine calls NoteVictim for its own operations, and the world for messages between ranks.
func (e *Engine) NoteVictim() {
	if e.opts.Victim != nil {
		e.victim.Do(e.opts.Victim)
	}
}

// Failure is the error with which this rank's operations fail: the cause of an abort, or that another rank has left. It
// is nil while operations work, be it only in some process sets, and after a shutdown.
func (e *Engine) Failure() *Error {
	if f := e.abort.Load(); f != nil {
		return f
	}
	if d := e.world.departure.Load(); d != nil && d.told.Load() != nil && !e.keepsSets.Load() {
		return d.told.Load()
	}
	if e.failure.Load() == nil {
		if err := e.net.Err(); err != nil {
			return e.noticed(err)
		}
	}
	return nil
}

// view says when this rank noticed the failure, and what it was doing: its oldest operation, or its last one if none is
// pending.
func (e *Engine) view() string { return e.viewOf(e.occupation()) }

// viewOf is view for a rank that was doing this.
func (e *Engine) viewOf(doing string) string {
	return fmt.Sprintf(" [%s UTC, seen by %s: %s]", time.Now().UTC().Format("2006-01-02 15:04:05.000"),
		e.opts.Describe(e.opts.Rank), doing)
}

// addingSet is the occupation of a rank that adds a process set.
const addingSet = "a process set was being added"

// submission is the occupation of a rank that submits op.
func submission(op *Op) string {
	name := op.Name
	if d := op.Type.Describe(); op.Unnamed || d.Role == operation.Meeting {
		name = d.Noname()
	}
	return fmt.Sprintf("%s %q was submitted", op.Type, name)
}

// occupation names the operation that this rank is waiting for, and how far that has come.
func (e *Engine) occupation() string {
	var oldest Waiting
	for _, w := range e.Waiting() {
		if w.Refused {
			continue
		}
		if oldest.Name == "" || w.Agreed && !oldest.Agreed || w.Agreed == oldest.Agreed &&
			w.Since.Before(oldest.Since) {
			oldest = w
		}
	}
	if oldest.Name == "" {
		return e.idleness()
	}
	phase := "waited for other ranks"
	switch {
	case oldest.Agreed:
		phase = "was being executed"
	case oldest.Unready:
		phase = "waited for its input"
	}
	return fmt.Sprintf("%s %q %s", oldest.Op, oldest.Name, phase)
}

// idleness is the occupation of a rank whose operations are all done.
func (e *Engine) idleness() string {
	records := e.Records()
	if len(records) == 0 {
		return "nothing was pending"
	}
	last := records[len(records)-1]
	return fmt.Sprintf("nothing was pending after %s %q", last.Op, last.Name)
}

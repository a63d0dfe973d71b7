package engine

import "github.com/gorovod/gorovod/internal/observe/flight"

// Records are this rank's last operations, the oldest first. Safe on any goroutine.
func (e *Engine) Records() []flight.Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flight.Records()
}

// recordSubmit notes a new operation. The callers of this function and of those below hold engine.mu.
func (l *lane) recordSubmit(en *Entry) {
	r := l.engine.flight.Begin(en.shape, int64(en.since))
	if r == nil {
		return
	}
	r.Set, r.Name, r.Op, r.DType = l.id, en.request.Name, en.request.Type, en.request.DType
	if en.unheld { // its caller has had the error
		r.Ended, r.Failed = int64(en.since), true
		return
	}
	en.record, en.number = r, r.Number
}

// recorded is the record of an operation, nil if a later operation has taken its place.
func (en *Entry) recorded() *flight.Entry {
	if en == nil || en.record == nil || en.record.Number != en.number {
		return nil
	}
	return en.record
}

func (l *lane) recordAgreed(en *Entry) {
	if r := en.recorded(); r != nil {
		r.Agreed, r.Sequence = int64(l.clock), l.sequence
	}
}

func (l *lane) recordStart(en *Entry) {
	if r := en.recorded(); r != nil && r.Started == 0 {
		r.Started = int64(l.clock)
	}
}

func (l *lane) recordEnd(en *Entry, err *Error) {
	if r := en.recorded(); r != nil {
		r.Ended, r.Failed = int64(l.clock), err != nil
	}
}

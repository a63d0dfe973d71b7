package engine

import (
	"slices"
	"sync/atomic"
	"time"
)

// Waiting describes a pending operation.
type Waiting struct {
	Set   int
	Name  string
	Op    string
	Since time.Time
	// Unready: its input is not there yet, or another operation is to end before it, and no other rank knows of it.
	// Agreed: all members have submitted it, and it is being executed or about to be.
	Unready, Agreed bool
	// Blocked is since when the program's main thread has waited for it and this rank
	// has submitted nothing; zero if that thread may do other things, if something will be submitted by itself, or
	// if all members have submitted this.
	Blocked time.Time
	// Needed: that thread goes on only when this has ended, whatever else it waits for.
	Needed bool
}

// Waiting lists what is pending on this rank. It is safe on any goroutine.
func (e *Engine) Waiting() []Waiting {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Waiting
	unready := false
	for _, l := range *e.lanes.Load() {
		unready = unready || len(l.unready) > int(l.following.Load())
		for name, en := range l.table {
			all = append(all, Waiting{Set: l.id, Name: name, Op: en.request.Type.String(), Since: en.since,
				Unready: slices.Contains(l.unready, en), Agreed: en.agreed, Blocked: l.blockedSince(en, now),
				Needed: en.holds})
		}
	}
	for i := range all {
		if unready {
			all[i].Blocked = time.Time{}
		}
	}
	return all
}

const (
	// waitSlice is what a wait without limit is made of.
	waitSlice = time.Second
	// waitBreak is the longest break between two waits for an operation, as they look for signals
	// at the end of each, that does not count as an end.
	waitBreak = 250 * time.Millisecond
	// waitFresh is how long ago a wait may have been noted that goes on: a slice, and a moment.
	waitFresh = waitSlice + time.Second
)

// mainWait is for how long the main thread has waited for an Entry, with no more than short breaks:
// both ends in nanoseconds since 1970, 0 for not at all. Only that thread writes it.
type mainWait struct{ from, to atomic.Int64 }

// noteBlocked notes that the caller has waited for en in vain from began to now.
func (e *Engine) noteBlocked(en *Entry, began, now time.Time) {
	if e.opts.MainThread == nil || !e.opts.MainThread() {
		return
	}
	b := &en.blocked
	if began.UnixNano()-b.to.Load() > int64(waitBreak) {
		b.from.Store(began.UnixNano())
	}
	b.to.Store(now.UnixNano())
}

// blockedSince is Waiting.Blocked of en, if no input is missing. A thread that waits for an operation which
// follows another one waits for the latter. The caller holds engine.mu.
func (l *lane) blockedSince(en *Entry, now time.Time) time.Time {
	if len(en.follows) > 0 {
		return time.Time{}
	}
	since := l.engine.blockedSince(en, now)
	for _, follower := range l.unready {
		if follower != en && follower.leader() == en && since.IsZero() {
			since = l.engine.blockedSince(follower, now)
		}
	}
	return since
}

// blockedSince is since when the main thread has waited for en itself. The caller holds mu.
func (e *Engine) blockedSince(en *Entry, now time.Time) time.Time {
	if en.agreed {
		return time.Time{}
	}
	from := en.since
	// Who changes a process set always waits, if on a thread that the interface has made for it.
	if !en.holds && !en.request.Type.ChangesSets() {
		if now.UnixNano()-en.blocked.to.Load() > int64(waitFresh) {
			return time.Time{}
		}
		from = time.Unix(0, en.blocked.from.Load())
	}
	if from.Before(e.active) {
		from = e.active
	}
	return from
}

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
	// Unready: its input is not there yet, or another operation must end first. No other rank knows of it.
	// Agreed: all members have submitted it. It is being executed, or about to be.
	Unready, Agreed bool
	// Refused: this rank has refused a call of it, and does not wait. The others fail when all have made it.
	Refused bool
	// Blocked is the time since which the program's main thread has waited for it while this rank submitted nothing. It
	// is zero if that thread may do other things, if an operation waits for its input and will then be announced, or if
	// all members have submitted this operation.
	Blocked time.Time
	// Needed: the main thread continues only when this operation has ended, whatever else it waits for.
	Needed bool
}

// Waiting lists the operations that are pending on this rank. It is safe on any goroutine.
func (e *Engine) Waiting() []Waiting {
	now := thisMoment()
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Waiting
	unready := false
	for _, l := range *e.lanes.Load() {
		unready = unready || len(l.unready) > int(l.following.Load())
		for name, en := range l.table {
			w := Waiting{Set: l.id, Name: name, Op: en.request.Type.String(), Since: en.since.time(),
				Unready: slices.Contains(l.unready, en) && !en.repeatsRefused(), Agreed: en.agreed, Needed: en.holds}
			if since := l.blockedSince(en, now); since != 0 {
				w.Blocked = since.time()
			}
			all = append(all, w)
		}
		for name, calls := range l.refused {
			if l.table[name] == nil {
				all = append(all, Waiting{Set: l.id, Name: name, Op: calls[0].request.Type.String(),
					Since: calls[0].since.time(), Refused: true})
			}
		}
	}
	for i := range all {
		if unready {
			all[i].Blocked = time.Time{}
		}
	}
	return all
}

// OthersSubmit reports whether a thread other than the main one has submitted an operation. If one has, this rank may
// submit more although its main thread waits. It is safe on any goroutine.
func (e *Engine) OthersSubmit() bool { return e.opts.OthersSubmit != nil && e.opts.OthersSubmit() }

const (
	// waitSlice is the length of the slices of a wait without limit.
	waitSlice = time.Second
	// waitBreak is the longest break between two slices of one wait. The waiter looks for signals in the break.
	waitBreak = 250 * time.Millisecond
	// waitFresh is the greatest age of a noted slice in a wait that goes on: one slice and a moment.
	waitFresh = waitSlice + time.Second
)

// mainWait says since when and until when the main thread has waited for an Entry, with no more than short breaks, as
// moments. Only that thread writes it.
type mainWait struct{ from, to atomic.Int64 }

// noteBlocked notes that the caller has waited for en from began to now, and that en has not ended.
func (e *Engine) noteBlocked(en *Entry, began, now moment) {
	if e.opts.MainThread == nil || !e.opts.MainThread() {
		return
	}
	b := &en.blocked
	if began.since(moment(b.to.Load())) > waitBreak {
		b.from.Store(int64(began))
	}
	b.to.Store(int64(now))
}

// blockedSince is Waiting.Blocked of en, if no input is missing. A thread that waits for an operation which follows
// another one waits for that other one. The caller holds engine.mu.
func (l *lane) blockedSince(en *Entry, now moment) moment {
	if len(en.follows) > 0 && !en.repeatsRefused() {
		return 0
	}
	since := l.engine.blockedSince(en, now)
	for _, follower := range l.unready {
		if follower != en && follower.leader() == en && since == 0 {
			since = l.engine.blockedSince(follower, now)
		}
	}
	return since
}

// blockedSince is the moment since which the main thread has waited for en itself, 0 for none. The caller holds mu.
func (e *Engine) blockedSince(en *Entry, now moment) moment {
	if en.agreed {
		return 0
	}
	from := en.since
	// Somebody always waits for a change of a process set, perhaps a thread that the interface has made for it.
	if !en.holds && !en.request.Type.ChangesSets() {
		if now.since(moment(en.blocked.to.Load())) > waitFresh {
			return 0
		}
		from = moment(en.blocked.from.Load())
	}
	return max(from, e.active)
}

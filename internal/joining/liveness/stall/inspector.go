// Package stall finds out why operations do not end: it names the ranks that have not submitted them, and what these
// ranks do instead. The engine's driver tells an Inspector the age of its oldest operation. When that operation is too
// old, the Inspector asks all ranks what they wait for, logs its conclusion and, if so configured, aborts. It changes
// nothing else and knows no transport.
package stall

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/logging"
)

// A rank has half of the check time to answer before it counts as silent, within these bounds. So a report is late by
// less than the wait that it reports.
const (
	leastAskTimeout = 500 * time.Millisecond
	askTimeout      = 5 * time.Second
)

// soon is the age at which the user first hears of a waiting operation, by one line, and after which ranks that wait
// for one another are in a deadlock. It is not longer than the check time.
const soon = 10 * time.Second

// Options is the input of New. Its functions are called on goroutines of the Inspector, except as Answer says. Only
// Ask, At, OthersSubmit and Reported may be nil.
type Options struct {
	Rank int
	// CheckTime is the age at which a waiting operation is reported, and the time between reports; 0 for never.
	CheckTime time.Duration
	// ShutdownTime is the age at which such an operation ends the job; 0 for never.
	ShutdownTime time.Duration
	// Deadlocks says that a deadlock ends the job.
	Deadlocks bool
	// Snapshot lists the pending operations of this rank, in any order.
	Snapshot func() []Waiting
	// OthersSubmit reports whether a thread other than the main one has submitted an operation on this rank.
	OthersSubmit func() bool
	// Ask returns the Answer of each rank, by world rank; nil for ranks that did not answer before ctx ended. Ask
	// itself is nil in a world of one.
	Ask func(ctx context.Context) ([][]byte, error)
	// At says where this rank's program is, such as "load (data/shards.py:31)"; empty if not known.
	At func() string
	// Members lists the world ranks of a process set, nil for a set that no longer exists.
	Members func(set int) []int
	// Describe names a world rank, such as "rank 2 on host a".
	Describe func(rank int) string
	Log      *slog.Logger
	// Reported, if set, is called after each report that does not end the job.
	Reported func()
	// Abort ends this rank's engine. It must not call Close.
	Abort func(error)
}

// Inspector watches over one rank's operations. Its methods are safe on any
// goroutine.
type Inspector struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	running bool // an inspection is running; only it uses marks and examined
	over    bool // closed, or aborted

	marks    map[key]mark
	notices  notices
	examined [2]bool // it has looked for a deadlock since this rank was blocked for so long: see toExamine
}

// mark says what the Inspector has done about a stalled operation.
type mark struct {
	reported time.Duration // its age at the last report
	judged   bool          // an inspection has found it past ShutdownTime
}

// New returns an Inspector. It ignores, with a warning, a ShutdownTime that is not above CheckTime.
func New(o Options) *Inspector {
	if o.ShutdownTime > 0 && o.ShutdownTime <= o.CheckTime {
		o.Log.Warn(fmt.Sprintf("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (%s) is ignored: it must be above "+
			"HOROVOD_STALL_CHECK_TIME_SECONDS (%s)", seconds(o.ShutdownTime), seconds(o.CheckTime)))
		o.ShutdownTime = 0
	}
	i := &Inspector{o: o, marks: map[key]mark{}}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// Answer returns this rank's answer for a rank that asks: at most 64 KiB. It calls Snapshot, At and OthersSubmit, and
// nothing else.
func (i *Inspector) Answer() []byte { return encode(i.o.Snapshot(), i.at(), i.othersSubmit()) }

func (i *Inspector) othersSubmit() bool { return i.o.OthersSubmit != nil && i.o.OthersSubmit() }

func (i *Inspector) at() string {
	if i.o.At == nil {
		return ""
	}
	return i.o.At()
}

// Check takes the age of the oldest pending operation, about once a second while there is one. It never blocks: an
// inspection runs on a goroutine of its own, one at a time.
func (i *Inspector) Check(oldest time.Duration) {
	if i.o.CheckTime <= 0 || oldest <= min(soon, i.o.CheckTime) {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running || i.over {
		return
	}
	i.running = true
	guard.In(&i.wg, "the stall inspector of "+i.o.Describe(i.o.Rank), i.failed, i.run)
}

// Close ends a running inspection, and waits for it. Closing twice is allowed.
func (i *Inspector) Close() {
	i.mu.Lock()
	i.over = true
	i.mu.Unlock()
	i.cancel()
	i.wg.Wait()
}

func (i *Inspector) run() {
	over := i.inspect()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running, i.over = false, i.over || over
}

// failed turns a panic into an abort, and ends the inspections.
func (i *Inspector) failed(err error) {
	i.mu.Lock()
	i.running, i.over = false, true
	i.mu.Unlock()
	i.o.Abort(err)
}

// inspect looks once, and reports if a report is due. It returns true if it has aborted.
func (i *Inspector) inspect() (aborted bool) {
	now := tidy(i.o.Snapshot())
	due, examine, first := i.due(now), i.toExamine(now), i.notices.due(now, i.o.CheckTime)
	if len(due) == 0 && !examine && !first {
		return false
	}
	r := report{Options: &i.o}
	r.views, r.trouble = i.ask()
	if i.ctx.Err() != nil {
		return false
	}
	// An operation that has ended meanwhile is no longer stalled.
	mine := tidy(i.o.Snapshot())
	for len(r.views) <= i.o.Rank {
		r.views = append(r.views, view{silent: true})
	}
	r.views[i.o.Rank] = viewOf(answer{Waiting: mine, At: label(i.at()), OthersSubmit: i.othersSubmit()})
	var all, early []stalled
	for _, w := range mine {
		switch members := i.o.Members(w.Set); {
		case members == nil || w.joined() || w.Phase == Refused:
		case w.Since > i.o.CheckTime:
			all = append(all, diagnose(w, members, r.views))
		case w.Since > soon:
			early = append(early, diagnose(w, members, r.views))
		}
	}
	for _, t := range all {
		m := mark{reported: t.Since, judged: i.late(&t.Waiting)}
		if m.judged && t.hopeless() {
			r.fatal = true
		}
		if due[t.key()] {
			r.tensors = append(r.tensors, t)
			i.marks[t.key()] = m
		}
	}
	if i.o.Deadlocks {
		r.dead = deadlock(r.views, i.o.Members, r.proof)
		r.fatal = r.fatal || len(r.dead) > 0
	}
	if r.fatal {
		r.tensors = all
		i.o.Log.Error(r.text())
		i.o.Abort(r.cause())
		return true
	}
	if len(r.tensors) > 0 {
		i.o.Log.Warn(r.text())
		if i.o.Reported != nil {
			i.o.Reported()
		}
	} else if text, about := r.notice(early); first && text != "" && i.notices.isNew(about) {
		i.o.Log.Log(i.ctx, logging.Notice, text)
	}
	return false
}

// ask returns the answers of all ranks, by world rank.
func (i *Inspector) ask() ([]view, error) {
	if i.o.Ask == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(i.ctx, min(askTimeout, max(leastAskTimeout, i.o.CheckTime/2)))
	defer cancel()
	answers, err := i.o.Ask(ctx)
	views := make([]view, len(answers))
	for r, p := range answers {
		views[r] = viewFrom(p)
	}
	return views, err
}

// due finds the operations to report now. It depends on ages alone, and reads no clock.
func (i *Inspector) due(mine []Waiting) map[key]bool {
	due := map[key]bool{}
	marks := make(map[key]mark, len(i.marks))
	for _, w := range mine {
		k := w.key()
		m, reported := i.marks[k]
		if reported && w.Since < m.reported {
			reported = false // a later operation of the same name
		}
		if reported {
			marks[k] = m
		}
		if i.isStalled(&w) && (!reported || w.Since >= m.reported+i.o.CheckTime || i.late(&w) && !m.judged) {
			due[k] = true
		}
	}
	i.marks = marks
	return due
}

// toExamine reports whether to look for a deadlock now: once each time that this rank is blocked, after either time
// that proves one. Later reports look again.
func (i *Inspector) toExamine(mine []Waiting) (due bool) {
	since := blocked(mine)
	for n, others := range []bool{false, true} {
		long := i.o.Deadlocks && since > i.o.proof(others)+answerSkew+lookDelay
		due = due || long && !i.examined[n]
		i.examined[n] = long
	}
	return due
}

func (i *Inspector) isStalled(w *Waiting) bool {
	return w.Since > i.o.CheckTime && !w.joined() && w.Phase != Refused
}

// late reports whether w has waited long enough to end the job.
func (i *Inspector) late(w *Waiting) bool {
	return i.o.ShutdownTime > 0 && w.Since > i.o.ShutdownTime
}

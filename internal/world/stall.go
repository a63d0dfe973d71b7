package world

import (
	"time"

	"github.com/gorovod/gorovod/internal/liveness/stall"
)

// inspectStalls lets the ranks ask one another what they are waiting for when an
// operation does not end.
func (w *World) inspectStalls() {
	c := w.Config
	o := stall.Options{Rank: c.Rank, CheckTime: c.StallCheckTime, ShutdownTime: c.StallShutdownTime, Deadlocks: c.DeadlockAbort, Snapshot: w.waiting,
		Members: w.setMembers, Describe: w.Describe, Log: w.log, Reported: w.keepRecord, Abort: w.abort}
	if w.session != nil {
		o.Ask = w.session.Ask
	}
	w.stall = stall.New(o)
	if w.session != nil {
		w.session.OnAsk(w.stall.Answer)
	}
}

// waiting is what this rank is waiting for.
func (w *World) waiting() []stall.Waiting {
	w.mu.Lock()
	e := w.Engine
	w.mu.Unlock()
	if e == nil {
		return nil
	}
	now := time.Now()
	var all []stall.Waiting
	for _, p := range e.Waiting() {
		phase := stall.Submitted
		switch {
		case p.Agreed:
			phase = stall.Executing
		case p.Unready:
			phase = stall.Unready
		}
		at := stall.Waiting{Set: p.Set, Name: p.Name, Op: p.Op, Since: now.Sub(p.Since), Phase: phase}
		if !p.Blocked.IsZero() {
			at.Blocked = now.Sub(p.Blocked)
		}
		all = append(all, at)
	}
	return all
}

func (w *World) setMembers(id int) []int {
	s, _ := w.Engine.Set(id)
	return s.Ranks
}

package liveness

import (
	"time"

	"github.com/gorovod/gorovod/internal/liveness/stall"
)

// inspectStalls lets the ranks ask one another what they are waiting for when an
// operation does not end.
func (m *Monitor) inspectStalls() {
	c := m.Config
	o := stall.Options{Rank: m.Rank, CheckTime: c.StallCheckTime, ShutdownTime: c.StallShutdownTime,
		Deadlocks: c.DeadlockAbort, Snapshot: m.waiting, Members: m.setMembers, Describe: m.Members.Describe,
		Log: m.Log, Reported: m.Record, Abort: m.Abort}
	if m.Session != nil {
		o.Ask = m.Session.Ask
	}
	m.stall = stall.New(o)
	if m.Session != nil {
		m.Session.OnAsk(m.stall.Answer)
	}
}

// waiting lists the pending operations of this rank.
func (m *Monitor) waiting() []stall.Waiting {
	e, _ := m.state()
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
		case p.Refused:
			phase = stall.Refused
		}
		at := stall.Waiting{Set: p.Set, Name: p.Name, Op: p.Op, Since: now.Sub(p.Since), Phase: phase, Needed: p.Needed}
		if !p.Blocked.IsZero() {
			at.Blocked = now.Sub(p.Blocked)
		}
		all = append(all, at)
	}
	return all
}

func (m *Monitor) setMembers(id int) []int {
	e, _ := m.state()
	s, _ := e.Set(id)
	return s.Ranks
}

package liveness

import (
	"fmt"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/joining/liveness/stall"
	"github.com/gorovod/gorovod/internal/observe/vitals"
)

// inspectStalls lets the ranks ask one another what they are waiting for when an
// operation does not end.
func (m *Monitor) inspectStalls() {
	c := m.Config
	o := stall.Options{Rank: m.Rank, CheckTime: c.StallCheckTime, ShutdownTime: c.StallShutdownTime,
		Deadlocks: c.DeadlockAbort, Snapshot: m.waiting, OthersSubmit: m.othersSubmit, Members: m.setMembers,
		Describe: m.Members.Describe, Log: m.Log, Reported: m.Record, Abort: m.Abort, At: Place}
	if m.Session != nil {
		o.Ask = m.Session.Ask
	}
	m.stall = stall.New(o)
	if m.Session != nil {
		m.Session.OnAsk(m.stall.Answer)
	}
}

// Place is where the main thread's program is: the innermost function, and where it is deep in a library, the innermost
// function of the program's own file.
func Place() string {
	frames := vitals.Stack()
	for len(frames) > 0 && strings.HasPrefix(frames[0].File, "<frozen ") { // python -m
		frames = frames[1:]
	}
	if len(frames) == 0 {
		return ""
	}
	name := func(f vitals.Frame) string { return fmt.Sprintf("%s (%s:%d)", f.Func, f.File, f.Line) }
	inner, own := frames[len(frames)-1], frames[0]
	for _, f := range frames {
		if f.File == own.File {
			own = f
		}
	}
	if own == inner {
		return name(inner)
	}
	return name(inner) + ", called from " + name(own)
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

// othersSubmit reports whether a thread other than the main one has submitted an operation on this rank.
func (m *Monitor) othersSubmit() bool {
	e, _ := m.state()
	return e != nil && e.OthersSubmit()
}

func (m *Monitor) setMembers(id int) []int {
	e, _ := m.state()
	s, _ := e.Set(id)
	return s.Ranks
}

package engine

import (
	"fmt"
	"strings"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// A call that check refuses fails on this rank at once. The other members do not see its arguments, and wait for this
// rank. So the rank announces the call all the same, by a Request that says why it takes no part:
//
//  1. The Entry of the refused call goes into lane.refused, not into the table. Nobody holds it, and it has no memory.
//  2. When all members have made the call, the coordinator fails it on each of them, with this rank's reason.
//  3. That Response ends the oldest refused Entry of its name, before the operation of that name in the table.
//
// So a refused call counts as this rank's call of that name, and the calls of all ranks pair up as they would without
// the mistake. If the program goes on, its next call of that name follows the refused one: the lane announces it when
// the refused one has ended.

// mostRefused is the most refused calls of a lane that wait for the other members, because a program that repeats a
// mistake would otherwise fill the memory. Further refused calls are not announced.
const mostRefused = 1 << 10

// refuseCall announces a call that check has refused with err.
func (l *lane) refuseCall(op *Op, err *Error) {
	l.announceRefused(&group{entries: []*Entry{l.refusedEntry(op, err)}}, op.Unnamed)
}

// refuseGroup announces a grouped call that check has refused with err. An empty name is the engine's to give.
func (l *lane) refuseGroup(name string, ops []Op, err *Error) {
	g := &group{name: strings.Clone(name), entries: make([]*Entry, len(ops))}
	for i := range ops {
		g.entries[i] = l.refusedEntry(&ops[i], err)
		g.entries[i].request.Group, g.entries[i].request.GroupSize = g.name, int32(len(ops))
	}
	l.announceRefused(g, name == "")
}

// refusedEntry makes the Entry of an operation that has failed with err for its caller.
func (l *lane) refusedEntry(op *Op, err *Error) *Entry {
	o := &l.engine.opts
	told := fmt.Sprintf("%s refuses %s", o.Describe(o.Rank), err.Reason)
	en := entries.Get().(*Entry)
	en.engine, en.lane, en.refusal, en.card, en.unheld = l.engine, l, err, negotiate.NoCard, true
	en.refs.Store(1)
	en.op.Type = op.Type
	en.request = negotiate.Request{Type: op.Type, DType: tensor.Uint8, Name: strings.Clone(op.Name),
		Device: negotiate.CPUDevice, Prescale: 1, Postscale: 1, Refused: told[:min(len(told), negotiate.MaxRefused)]}
	return en
}

// announceRefused announces the refused call of g, if the other members can wait for it. A single operation comes as a
// group of one that has no name, so the other members do not take it for a group. If unnamed is set, the engine names
// the call.
func (l *lane) announceRefused(g *group, unnamed bool) {
	e := l.engine
	e.mu.Lock()
	if unnamed {
		l.numberRefused(g)
	}
	admitted := l.admitRefused(g)
	if admitted {
		for _, en := range g.entries {
			en.group = g
			l.followRefused(en)
			name := en.request.Name
			l.refused[name] = append(l.refused[name], en)
			l.submitted(en)
		}
		l.enter(g, l.lookupGroup(g))
	}
	e.mu.Unlock()
	if admitted {
		e.ensureDriver()
		return
	}
	for _, en := range g.entries {
		en.recycle()
	}
}

// numberRefused names the operations of g as if they were not refused. The caller holds engine.mu.
func (l *lane) numberRefused(g *group) {
	if g.entries[0].request.GroupSize > 0 {
		l.numberGroup(g)
	} else if l.admit(g.entries[0]) == nil {
		l.number(g.entries[0])
	}
}

// admitRefused reports whether g is a call that other members can make, and that this rank could make now. The caller
// holds engine.mu.
func (l *lane) admitRefused(g *group) bool {
	n := len(g.entries)
	for _, calls := range l.refused {
		n += len(calls)
	}
	if n > mostRefused || len(g.name) > negotiate.MaxName {
		return false
	}
	names := make(map[string]bool, len(g.entries))
	for _, en := range g.entries {
		r := &en.request
		if r.Name == "" || len(r.Name) > negotiate.MaxName || names[r.Name] ||
			r.Type.Describe().Role != operation.Collective || l.admit(en) != nil {
			return false
		}
		names[r.Name] = true
	}
	return true
}

// followRefused makes en wait for the last refused call of its name. The caller holds engine.mu.
func (l *lane) followRefused(en *Entry) {
	if len(l.refused) == 0 {
		return
	}
	if calls := l.refused[en.request.Name]; len(calls) > 0 {
		en.follows = append(en.follows, calls[len(calls)-1])
	}
}

// pending is the Entry that the next Response of a name ends, nil if this rank has none. The caller holds engine.mu.
func (l *lane) pending(name string) *Entry {
	if len(l.refused) > 0 {
		if calls := l.refused[name]; len(calls) > 0 {
			return calls[0]
		}
	}
	return l.table[name]
}

// forgetRefused ends the oldest refused call of a name. The caller holds engine.mu.
func (l *lane) forgetRefused(name string) {
	if calls := l.refused[name]; len(calls) > 1 {
		l.refused[name] = calls[1:]
	} else {
		delete(l.refused, name)
	}
}

// repeatsRefused reports whether e waits for nothing but a refused call of its own name, which has been announced.
func (e *Entry) repeatsRefused() bool {
	return len(e.follows) == 1 && e.follows[0].unheld && e.op.Ready == nil
}

package engine

import (
	"strings"

	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// group holds the operations of a grouped call together until all are announced: all by marks in one step, or all in
// full.
type group struct {
	name    string
	entries []*Entry
	unready int // of entries: their inputs are not there yet
}

// submitGroup puts all operations of g into the table, or none of them.
func (l *lane) submitGroup(g *group) *Error {
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	unnamed := g.name == ""
	if unnamed {
		l.numberGroup(g)
	}
	for _, en := range g.entries {
		l.occupy(en)
		l.followRefused(en)
	}
	cached := l.lookupGroup(g)
	for i, en := range g.entries {
		err := l.admit(en) // sees a name that is used twice in the group, too
		if err == nil {
			if !cached && !unnamed {
				en.request.Name = strings.Clone(en.request.Name) // it was the caller's
			}
			l.table[en.request.Name] = en
			l.submitted(en)
			continue
		}
		for _, before := range g.entries[:i] {
			delete(l.table, before.request.Name)
			if before.op.Done != nil {
				e.callbackStarted() // undoes the expectCallback of submitted
			}
		}
		if unnamed {
			l.unnumberGroup(g)
		}
		for _, en := range g.entries {
			e.inUse.release(en)
		}
		return err
	}
	l.enter(g, cached)
	return nil
}

// enter announces g, which is in the table or refused, as soon as all its inputs are there. cached is the answer of
// lookupGroup a moment ago. The caller holds engine.mu.
func (l *lane) enter(g *group, cached bool) {
	l.engine.seat.submitted(len(g.entries))
	for _, en := range g.entries {
		l.traceSubmit(en)
		l.recordSubmit(en)
	}
	for _, en := range g.entries {
		if !en.ready() {
			g.unready++
			l.holdBack(en)
		}
	}
	if g.unready == 0 {
		l.announceGroup(g, cached)
	}
}

// groupMemberReady notes that one more operation of g can be announced. The caller holds engine.mu.
func (l *lane) groupMemberReady(g *group) {
	if g.unready--; g.unready == 0 {
		l.announceGroup(g, l.lookupGroup(g))
	}
}

// announceGroup announces all operations of g. cached is the answer of lookupGroup a moment ago. The caller holds
// engine.mu.
func (l *lane) announceGroup(g *group, cached bool) {
	if cached {
		l.marks = l.marks[:0]
		for i, s := range l.cards {
			g.entries[i].card, g.entries[i].gen = s.Card, s.Gen
			l.marks = append(l.marks, transport.Mark{Card: s.Card, Gen: s.Gen})
		}
		l.engine.counters.Marks.Add(int64(len(l.marks)))
		if l.board.MarkGroup(l.marks) {
			return
		}
	}
	for _, en := range g.entries {
		l.post(en)
	}
}

// staleEntry posts the Request of en in full, because its mark was of an old generation. The board refuses the marks of
// a group together, so it posts all of en's group that are still marked.
func (l *lane) staleEntry(en *Entry) {
	if en.group == nil {
		l.post(en)
		return
	}
	for _, other := range en.group.entries {
		if other.card != negotiate.NoCard {
			l.post(other)
		}
	}
}

// lookupGroup fills l.cards with the cards of g's requests, and reports whether all of them have one.
func (l *lane) lookupGroup(g *group) bool {
	l.requests = l.requests[:0]
	for _, en := range g.entries {
		l.requests = append(l.requests, &en.request)
	}
	var cached bool
	l.cards, cached = l.worker.LookupGroup(l.cards[:0], l.requests)
	return cached
}

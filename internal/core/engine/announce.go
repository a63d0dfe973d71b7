package engine

import (
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// submit puts en into the table and announces it to the other members. It holds engine.mu all the time, so that it
// announces nothing on a closed network.
func (l *lane) submit(en *Entry) *Error {
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := l.admit(en); err != nil {
		return err
	}
	if en.op.Unnamed {
		if err := l.number(en); err != nil {
			return err
		}
	}
	l.occupy(en)
	l.followRefused(en)
	card, gen, cached := l.worker.Lookup(&en.request)
	if !cached && !en.op.Unnamed {
		en.request.Name = strings.Clone(en.request.Name) // it was the caller's
	}
	l.table[en.request.Name] = en
	l.submitted(en)
	e.seat.submitted(1)
	l.traceSubmit(en)
	l.recordSubmit(en)
	if en.request.Type == operation.Join {
		l.join(en)
		return nil
	}
	if !en.ready() {
		l.holdBack(en)
		return nil
	}
	l.announce(en, card, gen, cached)
	return nil
}

// submitted notes the time at which en was submitted. The caller holds engine.mu, and has not counted en as pending
// yet.
func (l *lane) submitted(en *Entry) {
	if l.engine.seat.now().Pending() == 0 {
		l.engine.clock.left = 0 // nobody drives, so nobody would set stale
	}
	en.since = l.engine.clock.submitted()
	l.engine.active = en.since
	if en.op.Done != nil {
		l.engine.expectCallback()
	}
}

// admit returns an error if en may not enter the table. The caller holds engine.mu.
func (l *lane) admit(en *Entry) *Error {
	if f := l.engine.failure.Load(); f != nil {
		return f
	}
	if l.decisive().departure.Load() != nil {
		return errLeft
	}
	if l.removed {
		return &Error{Aborted, "Process set has been removed"}
	}
	if _, taken := l.table[en.request.Name]; taken {
		return duplicateName(en.request.Name)
	}
	if l.joining != nil && !en.request.Type.ChangesSets() {
		return errorf(InvalidArgument, "%s of tensor %q: this rank has joined; it may submit no tensor before all "+
			"ranks have.", en.request.Type.Describe().Name, en.request.Name)
	}
	return nil
}

// holdBack keeps an Entry whose input is not there yet, or that follows another one. The caller holds engine.mu.
func (l *lane) holdBack(en *Entry) {
	l.unready = append(l.unready, en)
	l.behind.Add(1)
	if len(en.follows) > 0 {
		l.following.Add(1)
	}
	l.engine.bell.Ring()
}

// announce marks the card of a request seen before, or posts the request in
// full. The caller holds engine.mu.
func (l *lane) announce(en *Entry, card, gen uint32, cached bool) {
	if cached {
		en.card, en.gen = card, gen
		l.engine.counters.Marks.Add(1)
		if l.mark(en) {
			return
		}
	}
	l.post(en)
}

// mark marks the card of en. It returns false if the card has been retired. The caller holds engine.mu, as does whoever
// changes the settings.
func (l *lane) mark(en *Entry) bool {
	if l.early.bound > 0 {
		if o := l.operandOf(en); o != nil {
			return l.early.board.MarkWith(en.card, en.gen, o)
		}
	}
	alone := en.op.WillWait && l.engine.seat.now().Pending() == 1 && l.settings.cycleTime == 0
	if alone { // its waiter, or else the background goroutine, takes the next batch at once
		return l.board.MarkLast(en.card, en.gen)
	}
	return l.board.Mark(en.card, en.gen)
}

// post announces a request in full. The caller holds engine.mu.
func (l *lane) post(en *Entry) {
	en.card = negotiate.NoCard
	l.postRequest(&en.request)
}

// postRequest sends r to the coordinator, or keeps it until there is room. The
// caller holds engine.mu.
func (l *lane) postRequest(r *negotiate.Request) {
	e := l.engine
	e.counters.Requests.Add(1)
	l.scratch = r.Append(l.scratch[:0])
	if len(l.outbox) > 0 || !l.board.Post(l.scratch) {
		l.outbox = append(l.outbox, slices.Clone(l.scratch))
		l.behind.Add(1)
		e.bell.Ring()
	}
}

// catchUp announces what submit could not: Requests for which the board had no room, operations whose inputs have
// become ready, and marks that the board has returned because they were of an old generation.
func (l *lane) catchUp() bool {
	l.heard = false
	l.board.TakeStale(l.onStale)
	worked := l.heard
	if !l.isBehind() {
		return worked
	}
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(l.outbox) > 0 {
		if !l.board.Post(l.outbox[0]) {
			break
		}
		l.outbox = append(l.outbox[:0], l.outbox[1:]...)
		worked = true
	}
	keep := l.unready[:0]
	for _, en := range l.unready {
		if !en.ready() {
			keep = append(keep, en)
			continue
		}
		worked = true
		e.active = thisMoment() // the others hear of it only now
		en.readyAt = e.active
		if en.group != nil {
			l.groupMemberReady(en.group)
			continue
		}
		card, gen, cached := l.worker.Lookup(&en.request)
		l.announce(en, card, gen, cached)
	}
	if l.joining != nil && len(l.unready) > 0 && len(keep) == 0 {
		l.settle()
	}
	l.unready = keep
	l.behind.Store(int32(len(l.outbox) + len(l.unready)))
	return worked
}

// isBehind reports whether catchUp may find something to announce.
func (l *lane) isBehind() bool { return l.behind.Load() > l.following.Load() }

// stale posts the Request of an operation in full, because its mark was of an old generation of the card.
func (l *lane) stale(card, gen uint32) {
	l.heard = true
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, en := range l.table {
		if en.card == card && en.gen == gen {
			l.staleEntry(en)
			return
		}
	}
}

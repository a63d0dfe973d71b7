package table

import (
	"cmp"
	"slices"

	"github.com/gorovod/gorovod/internal/core/slots"
)

// eviction removes rows that are used no more: see Options.Idle and Options.Rows. An update ends with the eviction of
// rows in some slots. What a slot loses depends only on its keys and on the pulls and updates of the members together,
// so rows are evicted at the same update whatever the number of members.
//
// By age, each update looks after some slots by turns. By number, a slot is looked after once it has an eighth more
// than its share of rows, so that the work for each new row is bounded.
type eviction struct {
	most  int               // rows of a slot; 0: any number
	turns int               // how many slots an update looks after because of the rows' ages
	due   []uint16          // the slots that this update has to look after
	over  [slots.Count]bool // a slot is among due because it has had too many
	rows  []aged            // of one slot
}

// aged is a row or a candidate with what decides over its eviction.
type aged struct {
	key         int64
	last, pulls uint32
	id          uint32
}

const (
	// leastShare is the least share of a slot in Options.Rows: with fewer rows, slots would differ much in what they
	// may keep.
	leastShare = 16
	// candidatesPerRow is how many candidates there may be for each row of Options.Rows.
	candidatesPerRow = 4
	// mostTurns is the most updates in which each slot has had its turn. By age, it is an eighth of Options.Idle.
	mostTurns = 1024
)

func newEviction(o *Options) eviction {
	e := eviction{most: int((o.Rows + slots.Count - 1) / slots.Count)}
	if o.Idle > 0 {
		updates := int(min(max(1, o.Idle/8), mostTurns))
		e.turns = (slots.Count + updates - 1) / updates
	}
	return e
}

// demand has the current or the next update look after a slot.
func (e *eviction) demand(slot int) {
	if !e.over[slot] {
		e.over[slot] = true
		e.due = append(e.due, uint16(slot))
	}
}

// limit has an update look after a slot that has got a row or a candidate, if it has too many now.
func (t *Table) limit(slot int) {
	if t.exceeds(slot) {
		t.eviction.demand(slot)
	}
}

// exceeds reports whether a slot has too many rows or candidates.
func (t *Table) exceeds(slot int) bool {
	most := t.eviction.most
	return most > 0 && (int(t.index.segments[slot].n) > most+most/8 ||
		t.candidates != nil && len(t.candidates[slot]) > candidatesPerRow*most)
}

// schedule adds the slots whose turn it is in an update.
func (e *eviction) schedule(step uint32) {
	for i := range e.turns {
		e.due = append(e.due, uint16((int(step)*e.turns+i)%slots.Count))
	}
}

// hasTurn reports whether it is a slot's turn in an update.
func (e *eviction) hasTurn(step uint32, slot int) bool {
	return (slot-int(step)*e.turns%slots.Count+slots.Count)%slots.Count < e.turns
}

// evict looks after slots that are due, until it has seen about limit rows. It reports whether none is left.
//
// A slot that has had too many and no longer has, because a candidate has become a row, loses none. So a table that was
// loaded from a save in between loses the same rows.
func (t *Table) evict(limit int) (done bool) {
	e := &t.eviction
	for ; len(e.due) > 0 && limit > 0; e.due = e.due[:len(e.due)-1] {
		slot := int(e.due[len(e.due)-1])
		limit -= 1 + int(t.index.segments[slot].n)
		e.over[slot] = false
		if !t.exceeds(slot) && !e.hasTurn(t.steps, slot) {
			continue
		}
		t.evictRows(slot)
		if t.candidates != nil && len(t.candidates[slot]) > 0 {
			limit -= len(t.candidates[slot])
			t.evictCandidates(slot)
		}
	}
	return len(e.due) == 0
}

// evictRows removes the rows of a slot that are too old or too many.
func (t *Table) evictRows(slot int) {
	s, e := &t.index.segments[slot], &t.eviction
	e.rows = e.rows[:0]
	for _, n := range s.entries {
		if n != 0 {
			h := t.rows.at(n.id())
			e.rows = append(e.rows, aged{h.key(), h.last, h.pulls, n.id()})
		}
	}
	stay := t.staying(e.most)
	if stay == len(e.rows) {
		return
	}
	clear(s.entries)
	for _, r := range e.rows[:stay] {
		s.put(slots.Hash(r.key), r.id)
	}
	s.n = uint32(stay)
	for _, r := range e.rows[stay:] {
		t.rows.remove(r.id)
	}
}

// evictCandidates removes the candidates of a slot that are too old or too many.
func (t *Table) evictCandidates(slot int) {
	e := &t.eviction
	e.rows = e.rows[:0]
	for key, c := range t.candidates[slot] {
		e.rows = append(e.rows, aged{key: key, last: c.last, pulls: c.pulls})
	}
	for _, r := range e.rows[t.staying(candidatesPerRow*e.most):] {
		delete(t.candidates[slot], r.key)
	}
}

// staying puts those of eviction.rows first that stay, at most limit unless that is 0, and returns their number.
func (t *Table) staying(limit int) int {
	o, rows := &t.options, t.eviction.rows
	stay := len(rows)
	for i := 0; i < stay; {
		if r := rows[i]; o.Idle > 0 && t.steps-r.last > o.Idle && (o.Keep == 0 || r.pulls < o.Keep) {
			stay--
			rows[i], rows[stay] = rows[stay], rows[i]
		} else {
			i++
		}
	}
	if limit == 0 || stay <= limit {
		return stay
	}
	slices.SortFunc(rows[:stay], func(a, b aged) int { // the last used first, of these the most used
		return cmp.Or(cmp.Compare(b.last, a.last), cmp.Compare(b.pulls, a.pulls), cmp.Compare(a.key, b.key))
	})
	return limit
}

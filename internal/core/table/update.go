package table

import "errors"

// Update is one change of a table by the gradients that the members of a process set have for its rows. Members give
// theirs one after the other, in the order of their ranks, by Add. Gradients of equal keys are added in that order, so
// the sum has the same bits each time. Then Apply lets the optimizer change each row once, by the sum. An Update is
// used again for the next step, and keeps its memory. One goroutine uses it, and a table has one Update at a time.
type Update struct {
	table *Table
	ids   []uint32 // the rows, in the order of their first gradients
	sums  []float32
	next  int  // the first row of ids that Apply has not changed
	began bool // Apply has
	// replaced is the table's at Begin: afterwards the ids are those of other rows.
	replaced int
}

// Begin starts the update of a table.
func (u *Update) Begin(t *Table) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u.table, u.ids, u.sums, u.next, u.began, u.replaced = t, u.ids[:0], u.sums[:0], 0, false, t.replaced
}

// usable says why the update cannot go on, if it cannot. The caller holds the table's mu.
func (u *Update) usable() error {
	switch t := u.table; {
	case t.closed:
		return t.describe(ErrClosed)
	case u.replaced != t.replaced:
		return t.describe(errors.New("its rows have been loaded from a file during a push; wait for pushes first"))
	}
	return nil
}

// Add adds gradients, Dim numbers for each of keys. A row that the table lacks is made. If pulls admit keys, its
// gradients are dropped instead.
func (u *Update) Add(keys []int64, gradients []float32) error {
	t := u.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := u.usable(); err != nil {
		return err
	}
	dim := t.options.Dim
	c := &t.cursor
	for c.start(t, keys, !t.options.admits()); c.next(); {
		for i, id := range c.ids[:c.n] {
			if id == none {
				continue
			}
			g, h := gradients[(c.begin+i)*dim:][:dim], t.rows.at(id)
			at := int(h.mark)
			if at >= len(u.ids) || u.ids[at] != id {
				h.mark = uint32(len(u.ids))
				u.ids = append(u.ids, id)
				u.sums = append(u.sums, g...)
				continue
			}
			sum := u.sums[at*dim:][:dim]
			for j := range sum {
				sum[j] += g[j]
			}
		}
	}
	return c.err
}

// Apply changes or evicts about limit rows, and reports whether the update has ended. All calls of an update have the
// same rate.
func (u *Update) Apply(rate float32, limit int) (done bool, err error) {
	t := u.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := u.usable(); err != nil {
		return false, err
	}
	if !u.began {
		u.began = true
		t.steps++
		t.rule.advance(rate)
		t.eviction.schedule(t.steps)
	}
	dim := t.options.Dim
	begin, end := u.next, min(len(u.ids), u.next+limit)
	for i := begin; i < end; i++ {
		h := t.rows.at(u.ids[i])
		h.last = t.steps
		t.rule.step(t.rows.weights(h), t.rows.state(h), u.sums[i*dim:][:dim])
	}
	u.next = end
	t.amid = end < len(u.ids) || !t.evict(limit-(end-begin))
	return !t.amid, nil
}

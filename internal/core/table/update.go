package table

// Update is one change of a table by the gradients that the members of a process set have for its rows. Members give
// theirs one after the other, in the order of their ranks, by Add. Gradients of equal keys are added in that order, so
// the sum has the same bits each time. Then Apply lets the optimizer change each row once, by the sum. An Update is
// used again for the next step, and keeps its memory. One goroutine uses it, and a table has one Update at a time.
type Update struct {
	table *Table
	ids   []uint32 // the rows, in the order of their first gradients
	sums  []float32
	next  int // the first row of ids that Apply has not changed
}

// Begin starts the update of a table.
func (u *Update) Begin(t *Table) {
	u.table, u.ids, u.sums, u.next = t, u.ids[:0], u.sums[:0], 0
}

// Add adds gradients, Dim numbers for each of keys. A row that the table lacks is made.
func (u *Update) Add(keys []int64, gradients []float32) error {
	t := u.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.describe(ErrClosed)
	}
	dim := t.options.Dim
	var c cursor
	for len(keys) > 0 {
		n := min(len(keys), block)
		if err := t.locate(&c, keys[:n], true); err != nil {
			return err
		}
		for i, id := range c.ids[:n] {
			g, h := gradients[i*dim:][:dim], t.rows.at(id)
			if h.mark == 0 {
				u.ids = append(u.ids, id)
				u.sums = append(u.sums, g...)
				h.mark = uint32(len(u.ids))
				continue
			}
			sum := u.sums[int(h.mark-1)*dim:][:dim]
			for j := range sum {
				sum[j] += g[j]
			}
		}
		keys, gradients = keys[n:], gradients[n*dim:]
	}
	return nil
}

// Apply changes at most limit rows, and reports whether all have been changed. All calls of an update have the same
// rate.
func (u *Update) Apply(rate float32, limit int) (done bool, err error) {
	t := u.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false, t.describe(ErrClosed)
	}
	if u.next == 0 {
		t.steps++
		t.rule.advance(rate)
	}
	dim := t.options.Dim
	end := min(len(u.ids), u.next+limit)
	for i := u.next; i < end; i++ {
		h := t.rows.at(u.ids[i])
		h.mark, h.last = 0, t.steps
		t.rule.step(t.rows.weights(h), t.rows.state(h), u.sums[i*dim:][:dim])
	}
	u.next = end
	return end == len(u.ids), nil
}

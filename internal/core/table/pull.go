package table

// Pull writes the rows of keys side by side to out, which has Dim numbers for each. To train is to count the pull, and
// to make rows that the table lacks. Otherwise the table stays as it is, and out gets the numbers that new rows would
// have. In a table that admits keys late, keys without a row read as zeros. Callers that must not block for long give
// some thousands of keys at a time.
func (t *Table) Pull(keys []int64, out []float32, train bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.describe(ErrClosed)
	}
	dim := t.options.Dim
	c := &t.cursor
	for c.start(t, keys, train); c.next(); {
		out := out[c.begin*dim:][:c.n*dim]
		for i, id := range c.ids[:c.n] {
			to := out[i*dim:][:dim]
			if id == none {
				if clear(to); !t.options.admits() {
					t.birth.fill(keys[c.begin+i], to)
				}
				continue
			}
			h := t.rows.at(id)
			copy(to, t.rows.weights(h))
			if train {
				if h.mark != t.round {
					h.mark, h.pulls = t.round, max(h.pulls, h.pulls+1)
				}
				h.last = t.steps
			}
		}
	}
	return c.err
}

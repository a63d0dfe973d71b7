package table

import "github.com/gorovod/gorovod/internal/core/slots"

// block is how many keys are looked up side by side: first their entries are read, then their rows. So the processor
// waits for the memory of many keys at a time.
const block = 128

// cursor holds what is known of a block of keys.
type cursor struct {
	hashes [block]uint64
	firsts [block]entry
	ids    [block]uint32
	ends   uint32 // the sum of the rows' last numbers, which nobody needs: it is what reads them early
}

// locate sets c.ids to the rows of keys, at most block. If make is set, it makes rows that the table lacks; otherwise
// their ids are MaxRows. The caller holds mu.
func (t *Table) locate(c *cursor, keys []int64, make bool) error {
	for i, key := range keys {
		hash := slots.Hash(key)
		c.hashes[i], c.firsts[i] = hash, t.index[slots.Of(hash)].first(hash)
	}
	for i, key := range keys {
		hash, e := c.hashes[i], c.firsts[i]
		if e != 0 && e.tag() == tag(hash) {
			h := t.rows.at(e.id())
			c.ends += t.rows.end(h)
			if h.key() == key {
				c.ids[i] = e.id()
				continue
			}
		}
		id, ok := t.find(key, hash)
		if !ok && make {
			var err error
			if id, err = t.bear(key, hash); err != nil {
				return err
			}
		} else if !ok {
			id = MaxRows
		}
		c.ids[i] = id
	}
	return nil
}

// bear makes the row of a key.
func (t *Table) bear(key int64, hash uint64) (uint32, error) {
	id, err := t.rows.add()
	if err != nil {
		return 0, t.describe(err)
	}
	h := t.rows.at(id)
	h.low, h.high = uint32(key), uint32(uint64(key)>>32)
	h.last = t.steps
	t.birth.fill(key, t.rows.weights(h))
	t.rule.begin(t.rows.state(h))
	t.insert(hash, id)
	return id, nil
}

// Pull writes the rows of keys side by side to out, which has Dim numbers for each. To train is to count the pull, and
// to make rows that the table lacks; otherwise out gets the numbers that such rows would have, and the table stays as
// it is. Callers that must not block for long give some thousands of keys at a time.
func (t *Table) Pull(keys []int64, out []float32, train bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.describe(ErrClosed)
	}
	dim := t.options.Dim
	var c cursor
	for len(keys) > 0 {
		n := min(len(keys), block)
		if err := t.locate(&c, keys[:n], train); err != nil {
			return err
		}
		for i, id := range c.ids[:n] {
			to := out[i*dim:][:dim]
			if id == MaxRows {
				t.birth.fill(keys[i], to)
				continue
			}
			h := t.rows.at(id)
			copy(to, t.rows.weights(h))
			if train {
				h.pulls = max(h.pulls, h.pulls+1)
				h.last = t.steps
			}
		}
		keys, out = keys[n:], out[n*dim:]
	}
	return nil
}

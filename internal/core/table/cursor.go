package table

import (
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/slots"
)

const (
	// block is the most keys that are looked up side by side.
	block = 64
	// mostEarly is how many bytes of a row are read early. The processor finds by itself that a longer row goes on.
	mostEarly = 4 * lineBytes
	// ring is how many keys are under way, at most: those of three blocks, and a power of two.
	ring = 4 * block
	// none is the id of a key without a row.
	none = MaxRows
)

// cursor finds the rows of keys, block by block. Memory is slow, so each block goes through three stages, and three
// blocks are under way:
//
//	ask     hash the keys, and begin to read the entries at which their searches begin
//	follow  take these entries, and begin to read their rows
//	settle  compare the rows' keys, search on for keys that are elsewhere, and make rows
//
// settle may make rows for one block when follow has seen the next one. Rows never move, so an entry that follow has
// taken stays a good guess. Segments move, so follow finds the entries anew.
type cursor struct {
	table *Table
	keys  []int64
	makes bool // rows for keys without one that are admitted; otherwise their ids are none

	asked, followed int // how many of keys have gone through the first two stages
	// Of keys, by their places modulo the length.
	hashes [ring]uint64
	firsts [ring]entry
	early  lines

	begin, n int // the current block: n of keys, from begin on
	ids      [block]uint32
	err      error // why next has returned false before the end
}

// start prepares to go through keys. The caller holds mu until it has done with the last block.
func (c *cursor) start(t *Table, keys []int64, makes bool) {
	c.table, c.keys, c.makes = t, keys, makes
	c.asked, c.followed, c.begin, c.n, c.err = 0, 0, 0, 0, nil
}

// next goes to the next block, whose rows are ids. It returns false at the end, or after an error.
func (c *cursor) next() bool {
	c.begin += c.n
	left := len(c.keys) - c.begin
	if c.n = min(block, left); c.n == 0 {
		c.keys = nil // they are the caller's
		return false
	}
	c.ask(c.begin + min(3*block, left))
	c.follow(c.begin + min(2*block, left))
	for i := range c.n {
		if c.ids[i], c.err = c.settle(c.begin + i); c.err != nil {
			c.keys = nil
			return false
		}
	}
	return true
}

// ask takes the keys before end through the first stage.
func (c *cursor) ask(end int) {
	n := 0
	for i, key := range c.keys[c.asked:end] {
		hash := slots.Hash(key)
		c.hashes[(c.asked+i)&(ring-1)] = hash
		if s := &c.table.index.segments[slots.Of(hash)]; len(s.entries) > 0 {
			c.early[n] = uintptr(unsafe.Pointer(&s.entries[hash&uint64(len(s.entries)-1)]))
			n++
		}
		if n == len(c.early) {
			prefetch(&c.early, n, 0)
			n = 0
		}
	}
	prefetch(&c.early, n, 0)
	c.asked = end
}

// follow takes the keys before end through the second stage.
func (c *cursor) follow(end int) {
	n := 0
	for i := c.followed; i < end; i++ {
		hash := c.hashes[i&(ring-1)]
		e := c.table.index.segments[slots.Of(hash)].first(hash)
		if e.tag() != tag(hash) {
			e = 0
		}
		c.firsts[i&(ring-1)] = e
		if e != 0 {
			c.early[n] = uintptr(unsafe.Pointer(c.table.rows.at(e.id())))
			n++
		}
		if n == len(c.early) {
			prefetch(&c.early, n, c.table.rows.early)
			n = 0
		}
	}
	prefetch(&c.early, n, c.table.rows.early)
	c.followed = end
}

// settle returns the row of the key at a place.
func (c *cursor) settle(i int) (id uint32, err error) {
	t, key, hash := c.table, c.keys[i], c.hashes[i&(ring-1)]
	if e := c.firsts[i&(ring-1)]; e != 0 && t.rows.at(e.id()).key() == key {
		return e.id(), nil
	}
	id, ok := t.find(key, hash)
	switch {
	case ok:
		return id, nil
	case c.makes && t.admit(key, hash):
		return t.bear(key, hash)
	}
	return none, nil
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
	if t.options.admits() {
		h.pulls = t.options.Admit - 1 // this pull is not counted yet
	}
	t.birth.fill(key, t.rows.weights(h))
	t.rule.begin(t.rows.state(h))
	if err := t.index.insert(&t.rows, hash, id); err != nil {
		return 0, t.describe(err)
	}
	t.limit(slots.Of(hash))
	return id, nil
}

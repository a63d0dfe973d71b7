package table

import "github.com/gorovod/gorovod/internal/core/slots"

// index finds rows by their keys. Each slot has a segment of its own, so that none is large: a segment of a table with
// 10⁸ rows on 4 ranks has some 24,000 rows, and grows in about a millisecond. A save goes through a table by slots.
type index struct {
	segments [slots.Count]segment
	chunks   []chunk        // those without memory are used again
	open     map[int]uint32 // by the number of entries: the chunk that has room for another such segment
	entries  int            // of all segments
}

// segment finds the rows of one slot: a hash table with linear probing.
type segment struct {
	entries []entry
	n       uint32
	chunk   uint32 // which has entries
}

// entry is 32 bits of a key's hash, and 1 + the row's number; 0 for none. The bits of the hash spare most looks at rows
// of other keys.
type entry uint64

const (
	entryBytes    = 8
	leastEntries  = 8
	mostLoadTenth = 8 // a segment grows when this many of ten entries are taken
)

func newEntry(hash uint64, id uint32) entry { return entry(tag(hash))<<32 | entry(id+1) }

// tag is taken from other bits of the hash than the slot and the place.
func tag(hash uint64) uint32 { return uint32(hash >> 20) }

func (e entry) tag() uint32 { return uint32(e >> 32) }
func (e entry) id() uint32  { return uint32(e) - 1 }

// first is the entry at which a search begins; 0 if there are none.
func (s *segment) first(hash uint64) entry {
	if len(s.entries) == 0 {
		return 0
	}
	return s.entries[hash&uint64(len(s.entries)-1)]
}

// find returns the row of a key.
func (t *Table) find(key int64, hash uint64) (id uint32, ok bool) {
	s := &t.index.segments[slots.Of(hash)]
	if len(s.entries) == 0 {
		return 0, false
	}
	mask := uint64(len(s.entries) - 1)
	for at := hash & mask; s.entries[at] != 0; at = (at + 1) & mask {
		if e := s.entries[at]; e.tag() == tag(hash) && t.rows.at(e.id()).key() == key {
			return e.id(), true
		}
	}
	return 0, false
}

// insert enters a row whose key the segment does not have.
func (x *index) insert(r *rows, hash uint64, id uint32) error {
	s := &x.segments[slots.Of(hash)]
	if (int(s.n)+1)*10 > len(s.entries)*mostLoadTenth {
		if err := x.grow(r, s); err != nil {
			return err
		}
	}
	s.put(hash, id)
	s.n++
	return nil
}

func (s *segment) put(hash uint64, id uint32) {
	mask := uint64(len(s.entries) - 1)
	at := hash & mask
	for s.entries[at] != 0 {
		at = (at + 1) & mask
	}
	s.entries[at] = newEntry(hash, id)
}

// grow doubles a segment.
func (x *index) grow(r *rows, s *segment) error {
	old := *s
	n := max(leastEntries, 2*len(old.entries))
	if err := x.place(s, n); err != nil {
		return err
	}
	for _, e := range old.entries {
		if e != 0 {
			s.put(slots.Hash(r.at(e.id()).key()), e.id())
		}
	}
	x.leave(&old)
	return nil
}

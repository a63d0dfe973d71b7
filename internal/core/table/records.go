package table

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gorovod/gorovod/internal/core/slots"
)

// A record is a row as bytes, in which a save keeps it, each number little-endian:
//
//	key int64, pulls uint32, idle uint32    as Row has them
//	weights, optimizer's numbers            float32, with all their bits
//
// That of a candidate has the first three numbers alone. A slot has the records of its rows, then of its candidates.
const (
	recordHead = 8 + 4 + 4
	// CandidateBytes is the length of a candidate's record.
	CandidateBytes = recordHead
)

// RecordBytes is the length of a row's record in a table with these options, which are valid.
func (o *Options) RecordBytes() int { return recordHead + 4*(o.Dim+newRule(o).states(o.Dim)) }

// Counts is what a slot has.
type Counts struct{ Rows, Candidates int64 }

// Progress is what a table knows of its updates besides its rows.
type Progress struct {
	// Updates is how many there have been.
	Updates uint32
	// Powers are the numbers that the optimizer keeps for all rows: Adam's β1ᵗ and β2ᵗ.
	Powers []float64
}

// Progress returns the table's progress, and whether an update has changed some of its rows and not yet the others.
func (t *Table) Progress() (p Progress, amid bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.Updates = t.steps
	for _, power := range t.rule.powers() {
		p.Powers = append(p.Powers, *power)
	}
	return p, t.amid
}

// Begun is the progress of a new table.
func (o *Options) Begun() Progress {
	p, _ := New(*o).Progress()
	return p
}

// CheckProgress says what is wrong with a progress that shall be one of a table with these options.
func (o *Options) CheckProgress(p *Progress) error {
	if n := len(newRule(o).powers()); len(p.Powers) != n {
		return fmt.Errorf("%d powers, where %s has %d", len(p.Powers), o.Optimizer, n)
	}
	for _, power := range p.Powers {
		if !(power >= 0 && power <= 1) { // also of a NaN
			return fmt.Errorf("%v is no power of a number from 0 to 1", power)
		}
	}
	return nil
}

// AppendRecords appends the records of a slot to dst, by ascending keys, and returns what it has. They are of one
// moment; see Progress for updates that stand in their middle. Others may use the table meanwhile.
func (t *Table) AppendRecords(dst []byte, slot int) ([]byte, Counts, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return dst, Counts{}, t.describe(ErrClosed)
	}
	all := t.ascending(slot)
	dst = slices.Grow(dst, len(all)*t.options.RecordBytes())
	for _, f := range all {
		h := t.rows.at(f.id)
		dst = appendHead(dst, f.key, h.pulls, t.steps-h.last)
		dst = appendNumbers(dst, t.rows.weights(h))
		dst = appendNumbers(dst, t.rows.state(h))
	}
	counts := Counts{Rows: int64(len(all))}
	if t.candidates != nil {
		of := t.candidates[slot]
		counts.Candidates = int64(len(of))
		for _, key := range slices.Sorted(maps.Keys(of)) {
			dst = appendHead(dst, key, of[key].pulls, t.steps-of[key].last)
		}
	}
	return dst, counts, nil
}

func appendHead(dst []byte, key int64, pulls, idle uint32) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(key))
	dst = binary.LittleEndian.AppendUint32(dst, pulls)
	return binary.LittleEndian.AppendUint32(dst, idle)
}

// found is a row of a slot.
type found struct {
	key int64
	id  uint32
}

// ascending lists the rows of a slot by ascending keys. The caller holds mu.
func (t *Table) ascending(slot int) []found {
	s := &t.index.segments[slot]
	all := make([]found, 0, s.n)
	for _, e := range s.entries {
		if e != 0 {
			all = append(all, found{t.rows.at(e.id()).key(), e.id()})
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(a.key, b.key) })
	return all
}

// CopySlot copies keys and weights of a slot's rows, by ascending keys, and returns how many rows the slot has. If keys
// or weights have no room for all, it copies none.
func (t *Table) CopySlot(slot int, keys []int64, weights []float32) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, dim := int(t.index.segments[slot].n), t.options.Dim
	if n > len(keys) || n*dim > len(weights) {
		return n
	}
	for i, f := range t.ascending(slot) {
		keys[i] = f.key
		copy(weights[i*dim:][:dim], t.rows.weights(t.rows.at(f.id)))
	}
	return n
}

func appendNumbers(dst []byte, numbers []float32) []byte {
	for _, x := range numbers {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
	}
	return dst
}

// RecordChecker checks the records of one slot after the other: those of its rows, or of its candidates.
type RecordChecker struct {
	options *Options
	length  int
	row     int // length of a row's record
	slot    int
	some    bool
	last    int64
}

// NewRecordChecker makes one for tables with these options.
func NewRecordChecker(o *Options) *RecordChecker {
	return &RecordChecker{options: o, row: o.RecordBytes()}
}

// Begin says to which slot the next records belong, and whether they are those of candidates. It returns the length of
// one.
func (c *RecordChecker) Begin(slot int, candidates bool) (length int) {
	c.slot, c.some, c.length = slot, false, c.row
	if candidates {
		c.length = CandidateBytes
	}
	return c.length
}

// Check says what is wrong with the next records of the slot. Their keys must ascend, and be possible in the slot and
// in the table. Weights may be any numbers.
func (c *RecordChecker) Check(records []byte) error {
	if len(records)%c.length != 0 {
		return fmt.Errorf("%d bytes are no records of %d bytes", len(records), c.length)
	}
	for ; len(records) > 0; records = records[c.length:] {
		key, pulls := int64(binary.LittleEndian.Uint64(records)), binary.LittleEndian.Uint32(records[8:])
		switch {
		case c.options.Keys > 0 && uint64(key) >= uint64(c.options.Keys):
			return fmt.Errorf("key %d is not one of 0 to %d", key, c.options.Keys-1)
		case slots.Of(slots.Hash(key)) != c.slot:
			return fmt.Errorf("key %d belongs to slot %d, not %d", key, slots.Of(slots.Hash(key)), c.slot)
		case c.some && key <= c.last:
			return fmt.Errorf("key %d stands after key %d", key, c.last)
		case c.length == CandidateBytes && pulls >= c.options.Admit:
			return fmt.Errorf("key %d has no row after %d pulls, and is to have one at the %dth", key, pulls,
				c.options.Admit)
		}
		c.some, c.last = true, key
	}
	return nil
}

// Replace makes the table one without rows that has made a progress, of which CheckProgress must approve. It fails if
// an update has changed some of its rows and not yet the others.
func (t *Table) Replace(p Progress) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return t.describe(ErrClosed)
	case t.amid:
		return t.describe(ErrAmid)
	}
	t.rows.free()
	t.index.free()
	t.eviction = newEviction(&t.options)
	if t.candidates != nil {
		*t.candidates = candidates{}
	}
	t.steps = p.Updates
	t.replaced++ // an update that has begun holds numbers of rows that are gone
	for i, power := range t.rule.powers() {
		*power = p.Powers[i]
	}
	return nil
}

// Insert sets rows from records, which a RecordChecker has found right. A row that the table lacks is made.
func (t *Table) Insert(records []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.describe(ErrClosed)
	}
	for n := t.options.RecordBytes(); len(records) > 0; records = records[n:] {
		key := binary.LittleEndian.Uint64(records)
		hash := slots.Hash(int64(key))
		id, ok := t.find(int64(key), hash)
		if !ok {
			var err error
			if id, err = t.rows.add(); err != nil {
				return t.describe(err)
			}
			t.rows.at(id).low, t.rows.at(id).high = uint32(key), uint32(key>>32)
			if err := t.index.insert(&t.rows, hash, id); err != nil {
				return t.describe(err)
			}
			t.limit(slots.Of(hash))
		}
		h := t.rows.at(id)
		h.pulls = binary.LittleEndian.Uint32(records[8:])
		h.last = t.steps - binary.LittleEndian.Uint32(records[12:])
		weights := t.rows.weights(h)
		takeNumbers(weights, records[recordHead:])
		takeNumbers(t.rows.state(h), records[recordHead+4*len(weights):])
	}
	return nil
}

// InsertCandidates adds candidates from records, which a RecordChecker has found right, to a table that admits keys.
func (t *Table) InsertCandidates(records []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.describe(ErrClosed)
	}
	for ; len(records) > 0; records = records[CandidateBytes:] {
		key := int64(binary.LittleEndian.Uint64(records))
		slot := slots.Of(slots.Hash(key))
		if t.candidates[slot] == nil {
			t.candidates[slot] = make(map[int64]candidate)
		}
		t.candidates[slot][key] = candidate{pulls: binary.LittleEndian.Uint32(records[8:]),
			last: t.steps - binary.LittleEndian.Uint32(records[12:])}
		t.limit(slot)
	}
	return nil
}

func takeNumbers(to []float32, from []byte) {
	for i := range to {
		to[i] = math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:]))
	}
}

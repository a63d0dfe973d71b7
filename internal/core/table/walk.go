package table

import (
	"cmp"
	"slices"

	"github.com/gorovod/gorovod/internal/core/slots"
)

// Row is a copy of a row.
type Row struct {
	Key     int64
	Weights []float32
	// State has the optimizer's numbers, whose order the optimizer knows.
	State []float32
	// Pulls is how many pulls, each of all ranks, have asked for the row to train it.
	Pulls uint32
	// Idle is how many updates of the table there have been since the row was last pulled or updated.
	Idle uint32
}

// Slot appends the rows of a slot to dst, by ascending keys. Others may use the table meanwhile and between two calls:
// the rows of one slot are of one moment, in no update's middle, unless an update is between two of its calls.
func (t *Table) Slot(slot int, dst []Row) []Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	begin := len(dst)
	for _, e := range t.index.segments[slot].entries {
		if e == 0 {
			continue
		}
		h := t.rows.at(e.id())
		dst = append(dst, Row{Key: h.key(), Weights: slices.Clone(t.rows.weights(h)),
			State: slices.Clone(t.rows.state(h)), Pulls: h.pulls, Idle: t.steps - h.last})
	}
	slices.SortFunc(dst[begin:], func(a, b Row) int { return cmp.Compare(a.Key, b.Key) })
	return dst
}

// All calls f for each row, slot by slot, until f returns false. f may use the table.
func (t *Table) All(f func(*Row) bool) {
	var rows []Row
	for slot := range slots.Count {
		rows = t.Slot(slot, rows[:0])
		for i := range rows {
			if !f(&rows[i]) {
				return
			}
		}
	}
}

package table

import "github.com/gorovod/gorovod/internal/core/slots"

// candidates are keys that have been pulled, but not often enough to have a row: see Options.Admit. A candidate needs
// some 30 bytes.
type candidates [slots.Count]map[int64]candidate

// candidate counts the pulls of a key.
type candidate struct {
	pulls uint32
	last  uint32 // Table.steps at the last pull
	round uint32 // Table.round of the last pull
}

// admits reports whether only keys that have been pulled several times have rows.
func (o *Options) admits() bool { return o.Admit > 1 }

// admit counts a pull of a key without a row, and reports whether the key gets one.
func (t *Table) admit(key int64, hash uint64) bool {
	if !t.options.admits() {
		return true
	}
	slot := slots.Of(hash)
	of := t.candidates[slot]
	c := of[key]
	if c.pulls > 0 && c.round == t.round {
		return false // another member has asked for it in the same pull
	}
	c.pulls++
	if c.pulls >= t.options.Admit {
		delete(of, key)
		return true
	}
	c.last, c.round = t.steps, t.round
	if of == nil {
		of = make(map[int64]candidate)
		t.candidates[slot] = of
	}
	of[key] = c
	t.limit(slot)
	return false
}

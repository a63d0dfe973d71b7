package table

import (
	"cmp"
	"slices"
	"sync"
)

// heat estimates which share of a table's lookups goes to its hottest keys, by Space-Saving (Metwally, Agrawal, El
// Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005) over a sample of the lookups. It
// tells no keys.
type heat struct {
	mu       sync.Mutex
	counters [heatCounters]counter
	used     int
	total    uint64 // of the sample, of late
	turn     int    // where in a batch the next sample begins
}

// counter counts a key of the sample: at most over of count are other keys', which had the counter before.
type counter struct {
	key         int64
	count, over uint64
}

const (
	heatCounters = 128
	heatSample   = 64 // keys of a batch, about
	hottest      = 16 // keys whose share is told
	// heatMemory is the size of the sample after which all counts are halved, so that the share is of late.
	heatMemory = 1 << 14
)

// note samples the keys of a batch.
func (h *heat) note(keys []int64, padding Padding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stride := max(1, len(keys)/heatSample)
	for i := h.turn % stride; i < len(keys); i += stride {
		if !padding.Set || keys[i] != padding.Key {
			h.add(keys[i])
		}
	}
	h.turn++
	if h.total >= heatMemory {
		h.total = 0
		for i := range h.counters {
			c := &h.counters[i]
			c.count, c.over = c.count/2, c.over/2
			h.total += c.count
		}
	}
}

func (h *heat) add(key int64) {
	h.total++
	least := 0
	for i := range h.counters[:h.used] {
		c := &h.counters[i]
		if c.key == key {
			c.count++
			return
		}
		if c.count < h.counters[least].count {
			least = i
		}
	}
	if h.used < heatCounters {
		h.counters[h.used] = counter{key, 1, 0}
		h.used++
		return
	}
	c := &h.counters[least]
	*c = counter{key, c.count + 1, c.count}
}

// share is the part of the lookups that goes to the hottest keys: a lower bound for the sample, from 0 to 1.
func (h *heat) share() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	sure := make([]uint64, h.used)
	for i, c := range h.counters[:h.used] {
		sure[i] = c.count - min(c.count, c.over)
	}
	slices.SortFunc(sure, func(a, b uint64) int { return cmp.Compare(b, a) })
	sum := uint64(0)
	for _, n := range sure[:min(hottest, len(sure))] {
		sum += n
	}
	return float64(sum) / float64(max(1, h.total))
}

// NoteLookups notes the keys of a batch that this rank looks up, for Hottest.
func (t *Table) NoteLookups(keys []int64, padding Padding) { t.heat.note(keys, padding) }

// Hottest estimates which share of the lookups of this rank goes to its 16 hottest keys, of late: from 0 to 1.
func (t *Table) Hottest() float64 { return t.heat.share() }

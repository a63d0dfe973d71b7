package feed

import (
	"math/bits"
	"time"
)

// Buckets is the number of a Histogram's bounds: 1 µs, 2 µs, 4 µs and so on, up to 16.8 s.
const Buckets = 25

// Histogram counts durations. Counts[i] is the number of those of at most Bound(i) and more than Bound(i-1). The last
// count is of all that are longer.
type Histogram struct {
	Counts [Buckets + 1]uint64
	Sum    uint64 // nanoseconds
}

// Bound is the upper limit of a bucket.
func Bound(bucket int) time.Duration { return time.Microsecond << bucket }

// Observe counts a duration in nanoseconds. Less than 1 ns, as after a clock was set back, counts as 1 ns.
func (h *Histogram) Observe(ns int64) {
	n := uint64(max(ns, 1))
	h.Sum += n
	h.Counts[min(bits.Len64((n-1)/uint64(time.Microsecond)), Buckets)]++
}

// Count is the number of durations.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Add adds what other has counted.
func (h *Histogram) Add(other *Histogram) {
	for i, c := range other.Counts {
		h.Counts[i] += c
	}
	h.Sum += other.Sum
}

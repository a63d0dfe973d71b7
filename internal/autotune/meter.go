package autotune

import "time"

// Meter turns what is executed into samples: bytes per microsecond, over as long
// as it takes until one tensor has been seen a number of times.
type Meter struct {
	steps int
	seen  map[string]int
	bytes int64
	since time.Time
}

// Sample is what a Meter has measured.
type Sample struct {
	Score float64 // bytes per microsecond
	Bytes int64   // in all
}

// maxNames bounds what a Meter remembers. Names beyond it, as those of unnamed
// tensors, which never come back, count by their bytes alone.
const maxNames = 8192

// NewMeter makes a Meter whose samples last `steps` rounds of a tensor.
func NewMeter(steps int) *Meter {
	return &Meter{steps: max(1, steps), seen: make(map[string]int)}
}

// Executed notes that a tensor of so many bytes has been reduced, at time now.
// With the last one of a sample it returns the sample.
func (m *Meter) Executed(name string, bytes int, now time.Time) (sample Sample, ok bool) {
	if m.since.IsZero() {
		m.since = now
	}
	m.bytes += int64(bytes)
	n, known := m.seen[name]
	if !known && len(m.seen) >= maxNames {
		return Sample{}, false
	}
	if n++; n <= m.steps {
		m.seen[name] = n
		return Sample{}, false
	}
	elapsed := now.Sub(m.since)
	sample = Sample{Score: float64(m.bytes) / (float64(max(elapsed, 1)) / float64(time.Microsecond)), Bytes: m.bytes}
	m.Reset()
	m.since = now
	return sample, true
}

// Reset forgets what has been executed, so that nothing of an earlier setting
// counts for the next one. Time runs from the next tensor.
func (m *Meter) Reset() {
	clear(m.seen)
	m.bytes = 0
	m.since = time.Time{}
}

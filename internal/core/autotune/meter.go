package autotune

import "time"

// Meter turns executed operations into samples, in bytes per microsecond. A sample ends when one tensor has been
// reduced a given number of times.
type Meter struct {
	steps int
	seen  map[string]int
	bytes int64
	since time.Time
}

// Sample is what a Meter has measured.
type Sample struct {
	Score float64 // bytes per microsecond
	Bytes int64   // of all tensors in the sample
}

// maxNames bounds the names that a Meter remembers. Only the bytes of further names count, such as those of unnamed
// tensors, which never come back.
const maxNames = 8192

// NewMeter makes a Meter whose samples last `steps` rounds of a tensor.
func NewMeter(steps int) *Meter {
	return &Meter{steps: max(1, steps), seen: make(map[string]int)}
}

// Executed notes that a tensor of that many bytes has been reduced, at time now. With the last tensor of a sample it
// returns the sample.
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

// Reset forgets what has been executed, so that nothing executed with an earlier setting counts for the next one. The
// next sample begins with the next tensor.
func (m *Meter) Reset() {
	clear(m.seen)
	m.bytes = 0
	m.since = time.Time{}
}

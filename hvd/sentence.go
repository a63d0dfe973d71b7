package hvd

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// String returns what matters of the figures in one sentence for people: the work, the rank for which this process has
// waited most, and what is pending. Python's hvd.metrics(short=True) returns the same sentence.
func (f *Figures) String() string {
	var count, bytes uint64
	var took time.Duration
	for _, c := range f.Collectives {
		count, bytes, took = count+c.Times.Count, bytes+c.Bytes, took+c.Times.Sum
	}
	said := []string{fmt.Sprintf("rank %d of %d: %d collectives (%s of tensors) in %s", f.Rank, f.Size, count,
		decimal(bytes), short(took))}
	if n := f.Steps.Count; n > 0 {
		said = append(said, fmt.Sprintf("%d steps of %s", n, short(f.Steps.Sum/time.Duration(n))))
	}
	if f.Samples > 0 {
		said = append(said, fmt.Sprintf("%d samples", f.Samples))
	}
	waited := fmt.Sprintf("waited %s for other ranks", short(f.Waited))
	var most Late
	for _, l := range f.WaitedFor {
		if l.Waited > most.Waited {
			most = l
		}
	}
	if most.Waited > 0 {
		waited += fmt.Sprintf(", most for rank %d (%s)", most.Rank, short(most.Waited))
	}
	said = append(said, waited)
	if f.Pending > 0 {
		said = append(said, fmt.Sprintf("%d pending, the oldest for %s", f.Pending, short(f.OldestPending)))
	}
	if f.NaNs > 0 {
		said = append(said, fmt.Sprintf("%d tensors with a NaN or an infinity", f.NaNs))
	}
	return strings.Join(said, "; ")
}

// short is a duration with three digits, or tenths of seconds.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return digits(float64(d)/float64(time.Microsecond), 3) + " µs"
	case d < time.Second:
		return digits(float64(d)/float64(time.Millisecond), 3) + " ms"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// decimal is a number of bytes with three digits, in units of powers of ten.
func decimal(n uint64) string {
	v := float64(n)
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if v < 1000 {
			return digits(v, 3) + " " + unit
		}
		v /= 1000
	}
	return digits(v, 4) + " TB"
}

// digits is v, which is below 1000, with so many digits.
func digits(v float64, n int) string {
	if v >= 999.5 {
		n = 4 // no exponent
	}
	return strconv.FormatFloat(v, 'g', n, 64)
}

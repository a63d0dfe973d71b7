package tracemerge

import (
	"fmt"
	"math"
	"time"
)

// Two facts bound how far a rank's clock is from the reference's, and need no exchange of messages:
//
//   - no rank hears that all have come to an operation before each has come to it
//   - no rank ends a sum before each has begun it, unless the ranks' data came with their announcements
//
// So two operations give bounds: if one comes first on one rank's clock, and second on the other's, it bounds the
// offset from one side. Operations to which now one rank and now the other came first bound it from both sides, and the
// shortest give the tightest bounds. The offset is the middle of the range that all operations leave, and its error is
// half the width. If no offset fits all of them, the clocks have drifted apart; then the offset is a line over the
// time.

// Clock says how a rank's clock relates to the reference's.
type Clock struct {
	// Add Offset, in µs, to the rank's times at the rank's beginning, and Drift for each µs after that.
	Offset, Drift float64
	// Error is the largest error of the offset, in µs; NaN if it is not known.
	Error float64
	Basis Basis
	since int64 // the rank's beginning
}

// Basis says how an offset was found.
type Basis string

// The bases of offsets.
const (
	Reference Basis = "reference"
	Bounds    Basis = "operations in common"
	SameHost  Basis = "another rank of its host"
	Unaligned Basis = "its own clock, as it is"
	Jumped    Basis = "operations in common, though the clock was set meanwhile"
)

// at translates a time of the rank to the reference's.
func (c *Clock) at(t int64) int64 {
	return t + int64(math.Round(c.Offset+c.Drift*float64(t-c.since)))
}

func (c Clock) String() string {
	switch c.Basis {
	case Reference, Unaligned:
		return string(c.Basis)
	}
	text := fmt.Sprintf("%+.3f ms ± %s", c.Offset/1000, micros(c.Error))
	if c.Drift != 0 {
		text += fmt.Sprintf(", drift %+.1f ppm", c.Drift*1e6)
	}
	return text + " (" + string(c.Basis) + ")"
}

func micros(us float64) string {
	if math.IsNaN(us) {
		return "unknown"
	}
	return time.Duration(us * 1000).Round(time.Microsecond).String()
}

// then combines two clocks: c leads to the clock of a rank whose clock is o.
func (c Clock) then(o Clock) Clock {
	c.Error += o.Error
	c.Offset += o.Offset + o.Drift*(float64(c.since)+c.Offset-float64(o.since))
	c.Drift += o.Drift
	return c
}

// bounds are the range that the operations of a stretch of time leave for an offset.
type bounds struct{ low, high float64 }

func (b *bounds) narrow(o bounds) {
	b.low, b.high = math.Max(b.low, o.low), math.Min(b.high, o.high)
}

var unbounded = bounds{math.Inf(-1), math.Inf(1)}

// windows are the bounds over time. Their number is limited: when more are needed, each gets twice as long.
type windows struct {
	since  int64
	length int64 // µs
	list   []bounds
}

const (
	mostWindows = 512
	firstLength = int64(time.Second / time.Microsecond / 2)
)

func newWindows(since int64) *windows { return &windows{since: since, length: firstLength} }

func (w *windows) add(at int64, b bounds) {
	i := max(0, at-w.since) / w.length
	for i >= mostWindows {
		for k := range (len(w.list) + 1) / 2 {
			b := w.list[2*k]
			if 2*k+1 < len(w.list) {
				b.narrow(w.list[2*k+1])
			}
			w.list[k] = b
		}
		w.list = w.list[:(len(w.list)+1)/2]
		w.length *= 2
		i /= 2
	}
	for int64(len(w.list)) <= i {
		w.list = append(w.list, unbounded)
	}
	w.list[i].narrow(b)
}

// within is the range that all windows leave for the offset at since, if the clock drifts by slope.
func (w *windows) within(slope float64) bounds {
	all := unbounded
	for i, b := range w.list {
		shift := slope * (float64(i) + 0.5) * float64(w.length)
		all.narrow(bounds{b.low - shift, b.high - shift})
	}
	return all
}

// maxDrift is how fast clocks may drift apart. Quartz clocks drift much less.
const maxDrift = 1e-3

// clock is the offset that the windows leave. ok: they bound it from both sides.
func (w *windows) clock() (Clock, bool) {
	c := Clock{Basis: Bounds, since: w.since}
	b := w.within(0)
	if math.IsInf(b.low, 0) || math.IsInf(b.high, 0) {
		return c, false
	}
	if b.low > b.high {
		c.Drift = w.slope()
		b = w.within(c.Drift)
	}
	c.Offset = (b.low + b.high) / 2
	c.Error = math.Abs(b.high-b.low)/2 + math.Abs(c.Drift)*float64(w.length)/2
	if b.low > b.high {
		c.Basis = Jumped
	}
	return c, true
}

// slope is the drift that leaves the widest range. The width is a concave function of the drift.
func (w *windows) slope() float64 {
	width := func(s float64) float64 { b := w.within(s); return b.high - b.low }
	low, high := -maxDrift, maxDrift
	for range 100 {
		a, b := low+(high-low)/3, high-(high-low)/3
		if width(a) < width(b) {
			low = a
		} else {
			high = b
		}
	}
	return (low + high) / 2
}

// compare is the range that one operation leaves for the offset between the reference and another rank. Times are whole
// µs, rounded down, so it adds one µs on each side.
func compare(ref, other *operation) bounds {
	b := unbounded
	if ref.came != 0 {
		b.low = float64(ref.came - other.agreed)
	}
	if other.came != 0 {
		b.high = float64(ref.agreed - other.came)
	}
	if ref.symmetric && other.symmetric && ref.ended != 0 && other.ended != 0 {
		b.narrow(bounds{float64(ref.began - other.ended), float64(ref.ended - other.began)})
	}
	return bounds{b.low - 1, b.high + 1}
}

// align finds the clocks of all ranks. The reference is the lowest rank of the first world. A later world is related to
// the earlier ones by the hosts on which it runs.
func (rep *Report) align() error {
	hosts := map[string]Clock{}
	for _, world := range rep.worlds() {
		ref := reference(world, hosts)
		clocks, err := against(world, ref)
		if err != nil {
			return err
		}
		base, known := hosts[world[ref].Host]
		switch {
		case len(hosts) == 0:
			base = Clock{Basis: Reference, since: world[ref].began}
		case known:
			base = base.from(world[ref].began)
		default:
			base = Clock{Basis: Unaligned, Error: math.NaN(), since: world[ref].began}
		}
		for i, r := range world {
			switch c := clocks[i]; {
			case i == ref:
				r.Clock = base
			case c != nil:
				r.Clock = c.then(base)
			default:
				continue
			}
			if _, known := hosts[r.Host]; !known {
				hosts[r.Host] = r.Clock
			}
		}
		for i, r := range world { // ranks that have no operation in common with the reference
			if i == ref || clocks[i] != nil {
				continue
			}
			r.Clock = Clock{Basis: Unaligned, Error: math.NaN(), since: r.began}
			if c, known := hosts[r.Host]; known {
				r.Clock = c.from(r.began)
			}
		}
	}
	return nil
}

// from is the same clock for another rank of its host, whose file began at since.
func (c Clock) from(since int64) Clock {
	c.Offset += c.Drift * float64(since-c.since)
	c.since, c.Basis = since, SameHost
	return c
}

// reference is the file of a world to which the other files are compared: the first one on a known host, or else the
// first.
func reference(world []*Rank, hosts map[string]Clock) int {
	for i, r := range world {
		if _, known := hosts[r.Host]; known {
			return i
		}
	}
	return 0
}

// against finds the clocks of a world's ranks relative to one rank's; nil for a rank for which that is impossible.
func against(world []*Rank, ref int) ([]*Clock, error) {
	found := make([]*windows, len(world))
	for i, r := range world {
		found[i] = newWindows(r.began)
	}
	for set := range sets(world) {
		err := join(world, set, func(ops []*operation) {
			if ops[ref] == nil {
				return
			}
			for i, o := range ops {
				if o != nil && i != ref {
					found[i].add(o.agreed, compare(ops[ref], o))
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	clocks := make([]*Clock, len(world))
	for i := range world {
		if c, ok := found[i].clock(); ok && i != ref {
			clocks[i] = &c
		}
	}
	return clocks, nil
}

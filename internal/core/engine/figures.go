package engine

import (
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// figures are what Engine.Figures tells besides the Counters. They are plain fields under engine.mu, which the driver
// holds anyway where it counts, so that counting costs a few additions for each collective.
type figures struct {
	kinds       [256]*kindFigures // by operation.Kind; nil before the first collective of the kind
	negotiation feed.Histogram
	waited      int64    // nanoseconds, see feed.Figures; without waits that go on
	toldWaited  uint64   // the most that Figures has returned
	waitedFor   []uint64 // nanoseconds by world rank, see feed.Figures; nil before the first wait
	fusion      feed.Fusion
	steps       steps
	traffic     [feed.NumWays][feed.NumClasses]feed.Traffic
}

// kindFigures are those of the collectives of one kind.
type kindFigures struct {
	works   [feed.NumClasses]feed.Work
	tensors [feed.OtherSets + 1][tensor.NumDTypes]uint64
}

// leastCharged is the shortest wait that is charged to the rank that was late. To ask the board who that was costs
// about a tenth of a microsecond.
const leastCharged = 10 * time.Microsecond

// countAgreed notes that all members have submitted en. Its Response came in rec. A Join is no wait: see
// feed.Figures.Waited. The caller holds engine.mu.
func (l *lane) countAgreed(en *Entry, rec *transport.Record, resp *negotiate.Response) {
	f := &l.engine.figures
	from := max(en.since, en.readyAt)
	f.negotiation.Observe(int64(l.clock - from))
	if en.request.Type == operation.Join {
		return
	}
	if waited := l.clock - max(from, l.waitedUntil); waited > 0 {
		f.waited += int64(waited)
		l.waitedUntil = l.clock
		if waited >= moment(leastCharged) {
			late := int(resp.Last)
			if rec.Kind != transport.RecordResponse {
				late = l.board.Last(rec.Card)
			}
			l.charge(late, int64(waited))
		}
	}
}

// charge charges a wait to the member that was late. The caller holds engine.mu.
func (l *lane) charge(late int, waited int64) {
	if late == l.rank || late < 0 || late >= len(l.members) {
		return
	}
	f := &l.engine.figures
	if f.waitedFor == nil {
		f.waitedFor = make([]uint64, l.engine.opts.Size)
	}
	f.waitedFor[l.members[late]] += uint64(waited)
}

// countExecuted notes that the current execution has ended. The caller holds engine.mu.
func (l *lane) countExecuted() {
	x, f, b := &l.current, &l.engine.figures, &l.plan[l.next-1]
	bytes := uint64(b.Bytes)
	d := b.Type.Describe()
	switch d.Output {
	case operation.Sent:
		bytes = uint64(x.parts[0].bytes) // the rows that this member has sent
	case operation.OfKeys:
		for i := range x.parts {
			bytes += uint64(x.parts[i].bytes) // the keys and rows that this member has sent
		}
		l.countTables()
	}
	k := f.kinds[b.Type]
	if k == nil {
		k = new(kindFigures)
		f.kinds[b.Type] = k
	}
	class := feed.ClassOf(bytes)
	w := &k.works[class]
	w.Bytes += bytes
	w.Bus += busBytes(d, bytes, len(l.members))
	w.Times.Observe(int64(l.clock - x.began))
	l.countSent(class, d, bytes)
	k.tensors[min(l.id, feed.OtherSets)][b.Responses[0].DType] += uint64(len(x.parts))
	if d.Fuses && l.settings.fusionThreshold > 0 {
		f.fusion.Batches++
		f.fusion.Tensors += uint64(len(x.parts))
		f.fusion.Bytes += bytes
	}
}

// countSent notes what the current execution, which has ended, has sent. The caller holds engine.mu.
func (l *lane) countSent(class feed.Class, d *operation.Descriptor, bytes uint64) {
	by, can, counted := l.run, l.can, &l.counted[0]
	if l.current.direct {
		by, can, counted = l.device, l.device.Can(), &l.counted[1]
	}
	if !can.Counts {
		l.addTraffic(can.Way, class, leastBytes(d, bytes, len(l.members)))
		return
	}
	now := by.Sent()
	for way, n := range now {
		l.addTraffic(feed.Way(way), class, n-counted[way])
	}
	*counted = now
	if l.early.board != nil {
		l.countEarly(class)
	}
}

func (l *lane) addTraffic(way feed.Way, class feed.Class, bytes uint64) {
	if bytes == 0 {
		return
	}
	t := &l.engine.figures.traffic[way][class]
	t.Bytes += bytes
	t.Time += uint64(max(0, l.clock-l.current.began))
}

// leastBytes is what each member of an operation has to send at least, on average, if nobody but the members combines
// or copies data.
func leastBytes(d *operation.Descriptor, bytes uint64, members int) uint64 {
	n := bytes * uint64(members-1)
	if d.Output == operation.LikeInput && !d.Has(operation.Root) {
		n *= 2
	}
	return n / uint64(members)
}

// busBytes is bytes times the factor of the bus bandwidth, as NCCL's tests define it.
func busBytes(d *operation.Descriptor, bytes uint64, members int) uint64 {
	if d.Has(operation.Root) && members > 1 {
		return bytes
	}
	return leastBytes(d, bytes, members)
}

// Figures are what this engine has counted so far. It is safe on any goroutine.
func (e *Engine) Figures() *feed.Figures {
	f := &feed.Figures{Marks: uint64(e.counters.Marks.Load()), Requests: uint64(e.counters.Requests.Load()),
		NaNs: uint64(e.counters.NaNs.Load()), Samples: uint64(e.counters.Samples.Load())}
	now := thisMoment()
	var waits []feed.Wait
	for _, w := range e.Waiting() {
		if w.Refused {
			continue
		}
		wait := feed.Wait{Set: w.Set, Name: w.Name, Op: w.Op, Age: uint64(max(0, now.time().Sub(w.Since)))}
		switch {
		case w.Agreed:
			wait.Phase = feed.Executing
		case w.Unready:
			wait.Phase = feed.Unready
		}
		waits = append(waits, wait)
		f.Pending++
		f.Oldest = max(f.Oldest, wait.Age)
	}
	f.SetWaits(waits)
	f.SetTables(e.tableFigures())
	e.mu.Lock()
	defer e.mu.Unlock()
	f.Negotiation, f.Waited, f.Fusion = e.figures.negotiation, e.waited(now), e.figures.fusion
	f.Steps = e.figures.steps.times
	for rank, ns := range e.figures.waitedFor {
		if ns > 0 {
			f.WaitedFor = append(f.WaitedFor, feed.Late{Rank: rank, Nanoseconds: ns})
		}
	}
	f.Early = feed.Early{Operations: uint64(e.counters.Ahead.Load()), Bytes: uint64(e.world.settings.early)}
	f.Hosts = e.links.figures()
	f.Fusion.Threshold = uint64(max(0, e.world.settings.fusionThreshold))
	for way := range e.figures.traffic {
		for class, t := range e.figures.traffic[way] {
			if t.Bytes > 0 {
				t.Way, t.Class = feed.Way(way), feed.Class(class)
				f.Traffic = append(f.Traffic, t)
			}
		}
	}
	for kind, k := range e.figures.kinds {
		if k != nil {
			k.addTo(f, operation.Kind(kind))
		}
	}
	return f
}

// waited is feed.Figures.Waited with the waits that have not ended. The result never shrinks. The caller holds mu.
func (e *Engine) waited(now moment) uint64 {
	all := e.figures.waited
	for _, l := range *e.lanes.Load() {
		oldest := now
		for _, en := range l.table {
			if !en.agreed && en != l.joining && (len(l.unready) == 0 || !slices.Contains(l.unready, en)) {
				oldest = min(oldest, max(en.since, en.readyAt))
			}
		}
		all += int64(max(0, now-max(oldest, l.waitedUntil)))
	}
	e.figures.toldWaited = max(e.figures.toldWaited, uint64(all))
	return e.figures.toldWaited
}

// addTo appends what has been counted of a kind.
func (k *kindFigures) addTo(f *feed.Figures, kind operation.Kind) {
	for c := range k.works {
		if w := &k.works[c]; w.Times.Sum > 0 {
			f.Works = append(f.Works, feed.Work{Op: kind, Class: feed.Class(c), Bytes: w.Bytes,
				Bus: w.Bus, Times: w.Times})
		}
	}
	for set := range k.tensors {
		for dt, n := range k.tensors[set] {
			if n > 0 {
				f.Tensors = append(f.Tensors, feed.Tensors{Op: kind, DType: tensor.DType(dt), Set: set, Count: n})
			}
		}
	}
}

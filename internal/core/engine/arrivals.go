package engine

import (
	"time"

	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// arrivals lets the timeline show when each member was ready for a tensor that is negotiated by cards. Such a tensor
// has no Request that would say so, so the coordinator looks at the marks while the timeline is on. The members of
// another host appear together, when the last of them is ready.
type arrivals struct {
	looked time.Time         // the driver's
	cards  []cardName        // the driver's scratch
	told   map[uint32][]bool // by card: the members that the timeline knows to be ready. Guarded by engine.mu
}

type cardName struct {
	card uint32
	resp *negotiate.Response
}

// lookEvery is the least time between two looks of the driver at marks. The timeline wakes the driver for that at most
// once every timeline.LookEvery.
const lookEvery = 200 * time.Microsecond

// observes reports whether this rank records arrivals on the lane.
func (l *lane) observes() bool {
	t := l.engine.opts.Timeline
	return l.coordinator != nil && t != nil && t.On()
}

// lookAtMarks tells the timeline which members have marked cards since the last look. The driver calls it.
func (l *lane) lookAtMarks() {
	if !l.observes() || time.Since(l.arrivals.looked) < lookEvery {
		return
	}
	e, a := l.engine, &l.arrivals
	a.looked = time.Now()
	a.cards = a.cards[:0]
	e.mu.Lock()
	l.worker.Cards(func(card uint32, resp *negotiate.Response) { a.cards = append(a.cards, cardName{card, resp}) })
	e.mu.Unlock()
	for _, s := range a.cards {
		if marked := l.coordination.Marked(s.card); len(marked) > 0 {
			e.mu.Lock()
			l.traceArrivals(s.card, s.resp, marked)
			e.mu.Unlock()
		}
	}
}

// traceArrivals tells the timeline which members are ready, if it has not been told yet. The caller holds engine.mu.
func (l *lane) traceArrivals(card uint32, resp *negotiate.Response, members []int) {
	t := l.engine.opts.Timeline
	told := l.arrivals.told[card]
	if told == nil {
		if l.arrivals.told == nil {
			l.arrivals.told = make(map[uint32][]bool)
		}
		told = make([]bool, len(l.members))
		l.arrivals.told[card] = told
	}
	for _, m := range members {
		if !told[m] {
			told[m] = true
			t.NegotiateStart(resp.Name, resp.Type.String())
			t.RankReady(resp.Name, m)
		}
	}
}

// traceCompleted notes that all members have marked a card. The caller holds engine.mu.
func (l *lane) traceCompleted(card uint32, resp *negotiate.Response) {
	if !l.observes() {
		return
	}
	all := make([]int, len(l.members))
	for m := range all {
		all[m] = m
	}
	l.traceArrivals(card, resp, all)
	delete(l.arrivals.told, card)
}

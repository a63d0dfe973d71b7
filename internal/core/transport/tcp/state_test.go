package tcp

import (
	"fmt"
	"testing"
)

// A lent connection comes back, a closed one stays closed, and an event without an effect changes nothing.
func TestTransitions(t *testing.T) {
	want := map[state]string{
		held:      "lent - - closed",
		lent:      "- returning held -",
		returning: "- - held -",
		closed:    "- - - -",
	}
	for s := range state(states) {
		got := ""
		for e := range event(events) {
			name := "-"
			if next, ok := s.after(e); ok {
				name = next.String()
			}
			got += name + " "
		}
		if got = got[:len(got)-1]; got != want[s] {
			t.Errorf("%v: %s, want %s", s, got, want[s])
		}
	}
	var c custody
	if c.happens(recalling) || !c.is(held) {
		t.Error("a held connection is recalled")
	}
	if !c.happens(lending) || !c.happens(recalling) || c.happens(recalling) || !c.happens(takingBack) || !c.is(held) {
		t.Error("a lent connection does not come back")
	}
}

// custodyModel is one half and all threads that use its connection, at one moment, each between two of its atomic
// steps. The half reads, and its data has come; or it writes, and there is room.
type custodyModel struct {
	state           state
	lock            place // the holder of the half's lock
	busy, token     bool  // a part is posted; its token is in news
	posted          int   // the number of posted parts
	back, ended     bool
	driver, server  place
	keeper, ender   place
	lendable, fails bool // the driver's next system call meets an event that it does not handle
	writes          bool // the goroutine writes first what was posted before it lent the connection
}

type place byte

const (
	nowhere     place = iota
	toPost            // the driver; it holds the lock
	toLook            // the driver; it holds the lock
	amidCall          // the driver or the keeper's system call; it holds the lock
	toLend            // the goroutine, like the following
	toFirst           // write what was posted before
	toFirstLook       // with the lock
	amidFirst         // the write; it holds the lock
	toWait            // for the return
	toLock            // to take it back
	toTakeBack        // with the lock
	toTell            // itself of a posted part
	toAwait           // a posted part, while held
	amidRead          // while held
	toEnd             // the thread that ends the network, like the following
	toSettle          //
	toAwaitBack       //
	amidWrite         // of the last word, while held
	toClose           //
	finished          //
)

const partsPosted = 2

// unlocked is the model after the lock's holder has let it go.
func (m custodyModel) unlocked() custodyModel {
	m.lock = nowhere
	return m
}

func (m custodyModel) recalled() custodyModel {
	if next, ok := m.state.after(recalling); ok {
		m.state = next
	}
	return m
}

func (m custodyModel) steps() []custodyModel {
	all := append(m.drives(), m.serves()...)
	return append(append(all, m.keeps()...), m.ends()...)
}

// drives returns the driver's possible next steps: post and move.
func (m custodyModel) drives() (all []custodyModel) {
	at := func(m custodyModel, p place) custodyModel {
		m.driver = p
		return m
	}
	switch m.driver {
	case nowhere:
		if m.lock != nowhere {
			break
		}
		m.lock = toLook
		if m.busy {
			return []custodyModel{at(m, toLook)}
		}
		if m.posted < partsPosted {
			return []custodyModel{at(m, toPost)}
		}
	case toPost:
		m.busy, m.posted = true, m.posted+1
		if m.state == lent {
			return []custodyModel{at(m, amidCall)}
		}
		m.token = true
		return []custodyModel{at(m.unlocked(), nowhere)}
	case toLook:
		if m.state == lent && m.busy {
			return []custodyModel{at(m, amidCall)}
		}
		return []custodyModel{at(m.unlocked(), nowhere)}
	case amidCall:
		nothing := at(m.unlocked(), nowhere)
		if m.fails {
			return []custodyModel{nothing, nothing.recalled()}
		}
		full := nothing
		full.busy = false
		return []custodyModel{nothing, full}
	}
	return all
}

// serves returns the possible next steps of the connection's goroutine.
func (m custodyModel) serves() []custodyModel {
	at := func(m custodyModel, p place) []custodyModel {
		m.server = p
		return []custodyModel{m}
	}
	switch m.server {
	case toLend:
		if next, ok := m.state.after(lending); ok && m.lendable && !m.ended {
			m.state = next
			if m.writes {
				return at(m, toFirst)
			}
			return at(m, toWait)
		}
		return at(m, toAwait)
	case toFirst:
		if m.lock == nowhere {
			m.lock = toFirstLook
			return at(m, toFirstLook)
		}
	case toFirstLook:
		if m.state == lent && m.busy {
			return at(m, amidFirst)
		}
		return at(m.unlocked(), toWait)
	case amidFirst:
		nothing := m.unlocked()
		if m.fails {
			return append(at(nothing, toWait), at(nothing.recalled(), toWait)...)
		}
		full := nothing
		full.busy = false
		return append(at(nothing, toWait), at(full, toWait)...)
	case toWait:
		if m.state == returning || m.ended {
			return at(m, toLock)
		}
	case toLock:
		if m.lock == nowhere {
			m.lock = toTakeBack
			return at(m, toTakeBack)
		}
	case toTakeBack:
		m.state, _ = m.state.after(takingBack)
		m.back = true
		return at(m.unlocked(), toTell)
	case toTell:
		m.token = m.token || m.busy
		return at(m, toAwait)
	case toAwait:
		if m.ended {
			return at(m, finished)
		}
		if m.token {
			m.token = false
			if m.busy {
				return at(m, amidRead)
			}
			return at(m, toAwait)
		}
	case amidRead:
		if m.state == closed {
			return at(m, finished)
		}
		m.busy = false
		return at(m, toAwait)
	}
	return nil
}

// keeps returns the keeper's only step, which need not happen.
func (m custodyModel) keeps() []custodyModel {
	if m.keeper == nowhere && (m.state == lent || m.state == returning) {
		m.keeper = finished
		return []custodyModel{m.recalled()}
	}
	return nil
}

// ends returns the next step of the thread that ends the network: write the last word, or close.
func (m custodyModel) ends() []custodyModel {
	at := func(m custodyModel, p place) []custodyModel {
		m.ender = p
		return []custodyModel{m}
	}
	switch m.ender {
	case toEnd:
		m.ended = true
		return at(m, toSettle)
	case toSettle:
		if m.state == lent || m.state == returning {
			return at(m.recalled(), toAwaitBack)
		}
		return at(m, amidWrite)
	case toAwaitBack:
		if m.back {
			return at(m, toSettle)
		}
	case amidWrite:
		return at(m, toClose)
	case toClose:
		m.state, _ = m.state.after(closing)
		return at(m, finished)
	}
	return nil
}

// wrong names the invariant that m breaks, "" for none.
func (m custodyModel) wrong() string {
	switch {
	case m.driver == amidCall && m.state != lent && m.state != returning:
		return "the driver uses a descriptor that has been taken back"
	case m.server == amidFirst && (m.driver == amidCall || m.state != lent && m.state != returning):
		return "the goroutine writes first while the driver writes, or after the end"
	case m.server == amidRead && (m.state == lent || m.state == returning):
		return "the goroutine reads what is lent"
	case m.ender == amidWrite && m.state != held:
		return "the last word is written to a connection that is not held"
	case m.state == never:
		return "what happened has no effect"
	}
	return ""
}

// good reports that all threads are done.
func (m custodyModel) good() bool {
	if m.ender == finished {
		return m.server == finished && m.state == closed && m.lock == nowhere
	}
	return m.ender == nowhere && m.posted == partsPosted && !m.busy && m.lock == nowhere
}

// In all orders of the steps of the driver, the connection's goroutine, the keeper and the thread that ends the
// network, no thread uses a connection that another has, and all threads can finish.
func TestAllOrdersOfLending(t *testing.T) {
	all := 0
	for kind := range 16 {
		start := custodyModel{server: toLend, lendable: kind&1 == 0, fails: kind&2 != 0, writes: kind&8 != 0}
		if kind&4 != 0 {
			start.ender = toEnd
		}
		all += exploreCustody(t, start)
	}
	t.Log(all, "states")
	if all < 1000 {
		t.Errorf("only %d states", all)
	}
}

// exploreCustody visits all states that can follow start. From each of them the end must be reachable.
func exploreCustody(t *testing.T, start custodyModel) int {
	before := map[custodyModel][]custodyModel{start: nil}
	var good []custodyModel
	for queue := []custodyModel{start}; len(queue) > 0; queue = queue[1:] {
		m := queue[0]
		if what := m.wrong(); what != "" {
			t.Fatalf("%s, after\n%s", what, wayTo(m, before))
		}
		if m.good() {
			good = append(good, m)
		}
		for _, next := range m.steps() {
			if _, known := before[next]; !known {
				queue = append(queue, next)
			}
			before[next] = append(before[next], m)
		}
	}
	ends := make(map[custodyModel]bool)
	for queue := good; len(queue) > 0; queue = queue[1:] {
		if m := queue[0]; !ends[m] {
			ends[m] = true
			queue = append(queue, before[m]...)
		}
	}
	for m := range before {
		if !ends[m] {
			t.Fatalf("it never ends after\n%s", wayTo(m, before))
		}
	}
	return len(before)
}

// wayTo returns one path from the start, which has no state before it.
func wayTo(m custodyModel, before map[custodyModel][]custodyModel) (way string) {
	for seen := map[custodyModel]bool{}; !seen[m]; m = before[m][0] {
		seen[m] = true
		way = fmt.Sprintf("%+v\n%s", m, way)
		if len(before[m]) == 0 {
			break
		}
	}
	return way
}

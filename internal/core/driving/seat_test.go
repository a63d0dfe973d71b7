package driving

import (
	"fmt"
	"testing"
)

// model is the threads of an engine around a Seat, as in package engine: each step of a thread here is one atomic step
// there. Operations may end at any time while some thread drives.
type model struct {
	seat Seat
	// Other signals between threads: kick and freed, channels of capacity 1, and the bell while the background
	// goroutine has armed it.
	kick, freed, ring bool
	waiters           [2]modelWaiter
	background        byte
	shutdown          byte
	wakes             byte // how often a transport still calls Wake
	after             then // what follows from the value that the background goroutine's Leave has returned
	behind            bool // Facts.Behind of the background goroutine's sleep, which is short then
}

type modelWaiter struct {
	at    byte
	async bool // it is not going to wait soon, so its submission finds a driver
	asks  bool // it never waits, but asks in a loop: a question may drive a step
	input bool // nobody rings when the input of its operation becomes ready
	done  bool // its operation has ended
	woken bool // while it is parked: it has been told to drive
	hasty bool // its time may still be over while it is parked
	after then // what follows from the value that its Leave has returned
}

// then is what a thread does after it has left the seat.
type then struct {
	ends bool // the background goroutine: it waits for a kick
	next Successor
}

func afterLeave(s Seat) then { return then{s.Pending() == 0 || s.Closing(), s.Next()} }

// Where a waiter is.
const (
	toSubmit byte = iota
	toHoldBack
	toAnnounce
	toEnsure
	toWait
	toFind
	toClaim
	toTry
	toUnclaimAndDrive
	toUnclaimAndPark
	toPark
	toLookAgain
	sleeps
	drives
	toKick
	gone
)

// Where the background goroutine is; drives is the same.
const (
	unkicked byte = 20 + iota
	napping
	left
	arming
	looking
	listing
	asleep
)

// Where Shutdown is; drives and gone are the same.
const (
	notYet byte = 40 + iota
	toRing
	toTakeLast
)

func (m model) wake() model {
	m.seat, m.kick = m.seat.Wake(), true
	return m
}

// leave is that of package engine: a Leave, and a signal to Shutdown.
func (m model) leave() model {
	m.seat = m.seat.Leave()
	m.freed = m.freed || m.seat.Wanted()
	return m
}

// parks reports that a waiter sleeps, and has not been woken.
func (w *modelWaiter) parks() bool { return (w.at == sleeps || w.at == toLookAgain) && !w.woken }

// unparked takes back the mark of the seat when no waiter is parked.
func (m model) unparked() model {
	if !m.waiters[0].parks() && !m.waiters[1].parks() {
		m.seat = m.seat.Unpark()
	}
	return m
}

// wakeNext wakes a parked waiter.
func (m model) wakeNext() (model, bool) {
	for i := range m.waiters {
		if w := &m.waiters[i]; w.parks() && !w.done {
			w.woken = true
			return m.unparked(), true
		}
	}
	return m, false
}

// findDriver is that of package engine.
func (m model) findDriver(next Successor) model {
	if next == Nobody {
		return m
	}
	if next == WakeParked {
		if woken, ok := m.wakeNext(); ok {
			return woken
		}
	}
	return m.wake()
}

// inputs reports whether an operation waits for its input.
func (m model) inputs() bool {
	for _, w := range m.waiters {
		if w.input && w.at != toSubmit && w.at != toHoldBack && !w.done {
			return true
		}
	}
	return false
}

// look is a driver's look: any operations that have been submitted may end.
func (m model) look() (all []model) {
	m.seat = m.seat.Looks()
	all = []model{m}
	for i := range m.waiters {
		for _, m := range all {
			if w := &m.waiters[i]; w.at != toSubmit && !w.done {
				w.done = true
				m.seat -= OnePending
				all = append(all, m)
			}
		}
	}
	return all
}

// steps are all states that may follow.
func (m model) steps() (all []model) {
	for i := range m.waiters {
		all = append(all, m.waiter(i)...)
	}
	all = append(all, m.aside()...)
	all = append(all, m.shuts()...)
	if m.wakes > 0 {
		woken := m.wake()
		woken.wakes--
		all = append(all, woken)
	}
	return all
}

func (m model) waiter(i int) []model {
	at := func(m model, place byte) model {
		m.waiters[i].at = place
		return m
	}
	w := m.waiters[i]
	switch w.at {
	case toSubmit:
		m.seat += OnePending
		if w.input {
			return []model{at(m, toHoldBack)}
		}
		return []model{m.submitted(i)}
	case toHoldBack: // behind is set first
		return []model{at(m, toAnnounce)}
	case toAnnounce:
		m.ring = true // has no effect before the bell is armed
		return []model{m.submitted(i)}
	case toEnsure:
		m = m.findDriver(m.seat.Next())
		return []model{at(m, gone), at(m, toWait)} // it may never wait
	case toWait:
		if w.done {
			return []model{at(m, gone)}
		}
		if seat, ok := m.seat.Wait(); ok {
			m.seat = seat
			return []model{at(m, drives)}
		}
		if w.asks && !m.seat.Dozing() {
			return []model{at(m, gone)} // or it asks again
		}
		return []model{at(m, toFind)}
	case toFind:
		if m.seat.Aside() {
			return []model{at(m, toClaim)}
		}
		return []model{at(m, toPark)}
	case toClaim:
		m.seat += OneClaim
		m.ring = m.ring || m.seat.Dozing()
		return []model{at(m, toTry)}
	case toTry:
		if seat, ok := m.seat.Wait(); ok {
			m.seat = seat
			return []model{at(m, toUnclaimAndDrive)}
		}
		return []model{at(m, toUnclaimAndPark)}
	case toUnclaimAndDrive, toUnclaimAndPark:
		m.seat -= OneClaim
		return []model{at(m, map[byte]byte{toUnclaimAndDrive: drives, toUnclaimAndPark: toPark}[w.at])}
	case toPark:
		if w.asks {
			return []model{at(m, gone), at(m, toWait)}
		}
		m.seat = m.seat.Park()
		m.ring = m.ring || m.seat.Dozing()
		if m.seat.Open() {
			return []model{at(m, toLookAgain)}
		}
		return []model{at(m, sleeps)}
	case toLookAgain:
		return []model{at(m, toWait).unparked()}
	case sleeps:
		var all []model
		m.waiters[i].woken = false
		if w.done || w.woken {
			all = append(all, at(m, toWait).unparked())
		}
		if w.hasty {
			m.waiters[i].hasty = false
			all = append(all, at(m, toEnsure).unparked())
		}
		return all
	case drives:
		var all []model
		for _, m := range m.look() {
			left := m.leave() // its operation has ended, Shutdown wants the seat, or its time is over
			left.waiters[i].after = afterLeave(left.seat)
			left.waiters[i].after.ends = false // does not matter
			all = append(all, at(left, toKick))
			if !w.asks { // a step is one look
				all = append(all, m)
			}
		}
		return all
	case toKick:
		m = m.findDriver(w.after.next)
		m.waiters[i].after = then{}
		if w.done {
			return []model{at(m, gone)}
		}
		if w.asks {
			return []model{at(m, gone), at(m, toWait)}
		}
		return []model{at(m, toEnsure)} // its time is over
	}
	return nil
}

// submitted continues a waiter whose operation others know of.
func (m model) submitted(i int) model {
	w := &m.waiters[i]
	if w.at = toWait; w.async {
		w.at = toEnsure
	}
	return m
}

func (m model) aside() (all []model) {
	at := func(m model, place byte) model {
		m.background = place
		return m
	}
	switch m.background {
	case unkicked:
		if m.kick {
			m.kick = false
			return []model{at(m, napping)}
		}
	case napping:
		if seat, ok := m.seat.Attend(); ok {
			m.seat = seat
			return []model{at(m, drives)}
		}
		return []model{at(m, unkicked)}
	case drives:
		for _, m := range m.look() {
			gone := m.leave()
			gone.after = afterLeave(gone.seat)
			all = append(all, at(gone, left))
			if !m.seat.AsideYields() {
				m.seat = m.seat.Doze()
				all = append(all, at(m, arming))
			}
		}
	case arming: // a ring after this is not lost, one before has no effect
		m.ring = false
		return []model{at(m, looking)}
	case looking:
		for _, m := range m.look() {
			if m.seat.Pending() == 0 || m.seat.Sought() {
				m.seat = m.seat.Rise()
				all = append(all, at(m, drives))
				continue
			}
			all = append(all, at(m, listing))
		}
	case listing:
		m.behind = m.inputs()
		return []model{at(m, asleep)}
	case asleep: // a peer may ring, too, but need not
		if m.ring || m.behind {
			m.behind = false
			m.seat = m.seat.Rise()
			all = append(all, at(m, drives))
		}
	case left:
		after := m.after
		m.after = then{}
		if after.next == WakeParked {
			m, _ = m.wakeNext()
		}
		if after.ends {
			return []model{at(m, unkicked)}
		}
		return []model{at(m, napping)}
	}
	return all
}

func (m model) shuts() []model {
	switch m.shutdown {
	case notYet:
		m.seat, _ = m.seat.Close()
		m.shutdown = toRing
		return []model{m}
	case toRing:
		m.ring = m.seat.Dozing() // has no effect otherwise
		m.shutdown = toTakeLast
		return []model{m}
	case toTakeLast:
		if seat, ok := m.seat.Last(); ok {
			m.seat, m.shutdown = seat, drives
			return []model{m}
		}
		if m.freed {
			m.freed = false
			return []model{m}
		}
	case drives: // it ends everything
		for i := range m.waiters {
			if w := &m.waiters[i]; w.at != toSubmit && !w.done {
				w.done = true
				m.seat -= OnePending
			}
		}
		m = m.leave()
		m.shutdown = gone
		return []model{m}
	}
	return nil
}

// wrong names the invariant that m breaks, "" for none.
func (m model) wrong(stuck bool) string {
	drivers := 0
	for _, w := range m.waiters {
		if w.at == drives || w.at == toUnclaimAndDrive {
			drivers++
		}
	}
	dozes := m.background >= arming && m.background <= asleep
	if dozes || m.background == drives {
		drivers++
	}
	if m.shutdown == drives {
		drivers++
	}
	switch {
	case drivers > 1:
		return "two threads drive"
	case drivers == 1 == m.seat.Free():
		return "the seat does not say whether somebody drives"
	case m.seat.Dozing() != dozes:
		return "the seat does not say whether the background goroutine sleeps"
	case !stuck:
		return ""
	case m.shutdown == toTakeLast:
		return "Shutdown never gets the seat"
	case m.seat.Closing():
		return "" // operations after a shutdown are refused
	case m.seat.Free() && m.seat.Pending() > 0:
		return "operations are pending, and nobody drives"
	case m.seat.Free() && m.seat.News():
		return "there are news, and nobody looks"
	case m.seat.Claimed():
		return "a waiter claims the seat from a sleeper"
	case m.seat.Dozing() && m.inputs():
		return "the background goroutine sleeps for long, and nobody asks for an input"
	case m.seat.Aside() && m.seat.Parked():
		return "a waiter is parked while the background goroutine sleeps in the seat"
	}
	return ""
}

// In all orders of the steps of two waiters, the background goroutine, a transport that wakes it and Shutdown, at
// most one thread drives at a time, and a driver is never missing while there is something to do.
func TestAllOrders(t *testing.T) {
	states := 0
	for kind := range 9 { // no input is awaited together with Shutdown
		start := model{background: unkicked, shutdown: gone}
		first, second := &start.waiters[0], &start.waiters[1]
		switch kind % 5 {
		case 1:
			first.async, first.hasty = true, true
		case 2:
			first.async, second.async = true, true
		case 3:
			first.async, first.asks = true, true
		case 4:
			first.async, second.async, second.input = true, true, true
		}
		if kind >= 5 {
			start.shutdown = notYet
		} else {
			start.wakes = 1
		}
		states += explore(t, start)
	}
	t.Log(states, "states")
	if states < 10000 {
		t.Errorf("only %d states", states)
	}
}

// explore visits all states that can follow start, and returns their number.
func explore(t *testing.T, start model) int {
	from := map[model]model{start: start}
	for queue := []model{start}; len(queue) > 0; queue = queue[1:] {
		m := queue[0]
		quiet := true // nothing happens any more unless something comes from outside
		for _, next := range m.steps() {
			if next != m {
				quiet = false
			}
			if _, known := from[next]; !known {
				from[next] = m
				queue = append(queue, next)
			}
		}
		if what := m.wrong(quiet); what != "" {
			way := ""
			for ; m != start; m = from[m] {
				way = fmt.Sprintf("%+v\n%s", m, way)
			}
			t.Fatalf("%s, after\n%s", what, way)
		}
	}
	return len(from)
}

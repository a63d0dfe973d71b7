package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/core/driving"
)

// parking has the waiters that sleep while another thread drives. A thread that leaves the seat wakes the one that has
// slept for longest, which then drives. The end of an operation wakes all that wait for it.
type parking struct {
	mu       sync.Mutex
	sleepers []*sleeper // in the order in which they came; the seat is Parked while there are any
}

// sleeper is a thread that waits for an Entry. It is in parking until it is woken, or leaves by itself.
type sleeper struct {
	en    *Entry
	woken chan struct{} // capacity 1
	timer *time.Timer
}

var sleepers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &sleeper{woken: make(chan struct{}, 1), timer: t}
}}

// park sleeps until en is done, d has passed, or the caller is to drive. Another thread has the seat, or gets it.
func (e *Engine) park(en *Entry, d time.Duration) {
	s := sleepers.Get().(*sleeper)
	s.en = en
	en.waiting.Store(true) // before the look at done, so that finish or this look sees the other
	now := e.enterParking(s)
	if now.Dozing() {
		e.ring()
	}
	if !en.Done() && !now.Open() {
		s.timer.Reset(d)
		select {
		case <-s.woken:
		case <-s.timer.C:
		}
		s.timer.Stop()
	}
	e.leaveParking(s)
	s.en = nil
	sleepers.Put(s)
}

// enterParking enters s, and returns the seat. From now on each thread that leaves the seat knows of s.
func (e *Engine) enterParking(s *sleeper) driving.Seat {
	p := &e.parking
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sleepers = append(p.sleepers, s)
	return e.seat.change(driving.Seat.Park)
}

// leaveParking takes s out, however its sleep has ended. The sleeper itself calls it.
func (e *Engine) leaveParking(s *sleeper) {
	p := &e.parking
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.sleepers, s); i >= 0 {
		p.remove(e, i)
	}
	select {
	case <-s.woken: // it was woken just after it had woken by itself
	default:
	}
}

// remove takes a sleeper out. The caller holds mu.
func (p *parking) remove(e *Engine, i int) {
	if p.sleepers = slices.Delete(p.sleepers, i, i+1); len(p.sleepers) == 0 {
		e.seat.change(driving.Seat.Unpark)
	}
}

// wake wakes the sleeper, which is out of parking from now on. The caller holds mu.
func (p *parking) wake(e *Engine, i int) {
	s := p.sleepers[i]
	p.remove(e, i)
	select {
	case s.woken <- struct{}{}:
	default: // never: only a sleeper in parking is woken, once
	}
}

// wakeNext wakes the waiter that is to drive next, and reports whether there is one. If another thread takes the seat
// first, that thread calls wakeNext when it leaves the seat.
func (e *Engine) wakeNext() bool {
	p := &e.parking
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.sleepers, func(s *sleeper) bool { return !s.en.Done() })
	if i < 0 {
		return false
	}
	p.wake(e, i)
	return true
}

// wakeWaiters wakes all that sleep until en is done.
func (e *Engine) wakeWaiters(en *Entry) {
	p := &e.parking
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.sleepers) - 1; i >= 0; i-- {
		if p.sleepers[i].en == en {
			p.wake(e, i)
		}
	}
}

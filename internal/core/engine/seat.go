package engine

import (
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/core/driving"
)

// seat is the drive lock: a driving.Seat, which says who drives and who drives next. Threads change it in single atomic
// steps.
type seat struct {
	word  atomic.Uint64
	freed chan struct{} // capacity 1: the seat has been left, and Shutdown wants it
}

func (s *seat) now() driving.Seat { return driving.Seat(s.word.Load()) }

// take applies change for a thread that wants the seat, and reports whether the thread has got it.
func (s *seat) take(change func(driving.Seat) (driving.Seat, bool)) bool {
	for {
		before := s.now()
		after, ok := change(before)
		if !ok || s.word.CompareAndSwap(uint64(before), uint64(after)) {
			return ok
		}
	}
}

// change applies change, and returns the new value.
func (s *seat) change(change func(driving.Seat) driving.Seat) (after driving.Seat) {
	for {
		before := s.now()
		after = change(before)
		if after == before || s.word.CompareAndSwap(uint64(before), uint64(after)) {
			return after
		}
	}
}

// leave gives up the seat, wakes Shutdown if Shutdown wants the seat, and returns the new value.
func (s *seat) leave() driving.Seat {
	after := s.change(driving.Seat.Leave)
	if after.Wanted() {
		select {
		case s.freed <- struct{}{}:
		default:
		}
	}
	return after
}

// takeLast waits for the seat. Only Shutdown calls it.
func (s *seat) takeLast() {
	for !s.take(driving.Seat.Last) {
		<-s.freed
	}
}

// submitted adds to the number of pending operations, and ended subtracts from it.
func (s *seat) submitted(n int) driving.Seat {
	return driving.Seat(s.word.Add(uint64(n) * uint64(driving.OnePending)))
}

func (s *seat) ended(n int) { s.word.Add(-uint64(n) * uint64(driving.OnePending)) }

// claim notes that a waiter tries to get the seat from the background goroutine, until unclaim.
func (s *seat) claim() driving.Seat { return driving.Seat(s.word.Add(uint64(driving.OneClaim))) }

func (s *seat) unclaim() { s.word.Add(^uint64(driving.OneClaim) + 1) }

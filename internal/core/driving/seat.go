package driving

import "time"

// Seat says in one word who drives and what is to be done. So each change is one atomic step, and the caller reads the
// consequences off the new value. It has
//
//	holder   FREE, WAITER (also a polling program, or Shutdown), BACKGROUND, DOZING (the background goroutine, asleep
//	         on the bell)
//	wanted   Shutdown wants the seat: nobody else takes it, and its holder hands it over
//	closing  Shutdown has begun: nobody needs a kick any more
//	news     Wake was called, and nobody has looked since
//	parked   waiters sleep until the seat is left or their operations end
//	claims   the waiters that want the seat from the background goroutine
//	pending  the operations that have not ended
type Seat uint64

const (
	free Seat = iota
	waiter
	background
	dozing
	holders = 3 // the bits of the holder

	wanted  Seat = 1 << 2
	closing Seat = 1 << 3
	news    Seat = 1 << 4
	parked  Seat = 1 << 5

	// OneClaim is added for each waiter that claims the seat. There are fewer than 2^24.
	OneClaim   Seat = 1 << 8
	maxClaims  Seat = 1<<24 - 1
	claimShift      = 8
	// OnePending is added for each submitted operation. Fewer than 2^32 are pending.
	OnePending   Seat = 1 << 32
	pendingShift      = 32
)

// Pending is the number of operations that have not ended.
func (s Seat) Pending() int { return int(s >> pendingShift) }

// Free reports that nobody drives.
func (s Seat) Free() bool { return s&holders == free }

// Aside reports that the background goroutine drives, awake or not. A waiter that has not got the seat claims it then;
// otherwise it parks.
func (s Seat) Aside() bool { return s&holders >= background }

// Dozing reports that the background goroutine sleeps on the bell, so the claimer of the seat must ring.
func (s Seat) Dozing() bool { return s&holders == dozing }

// Wanted reports that Shutdown wants the seat.
func (s Seat) Wanted() bool { return s&wanted != 0 }

// Closing reports that Shutdown has begun.
func (s Seat) Closing() bool { return s&closing != 0 }

// News reports that Wake was called, and nobody has looked since.
func (s Seat) News() bool { return s&news != 0 }

// Parked reports that waiters sleep while another thread drives. A thread that leaves the seat wakes one of them to
// take it.
func (s Seat) Parked() bool { return s&parked != 0 }

// Claimed reports that a waiter wants the seat from the background goroutine.
func (s Seat) Claimed() bool { return s>>claimShift&maxClaims != 0 }

// Wait lets a waiter take the seat. ok is false if somebody has it, or Shutdown wants it.
func (s Seat) Wait() (after Seat, ok bool) { return s.take(waiter) }

// Attend lets the background goroutine take the seat after a nap. It does not take the seat from waiters, nor if there
// is nothing to do.
func (s Seat) Attend() (after Seat, ok bool) {
	if s.Pending() == 0 && !s.News() {
		return s, false
	}
	return s.take(background)
}

func (s Seat) take(who Seat) (after Seat, ok bool) {
	if !s.Open() {
		return s, false
	}
	return s | who, true
}

// Doze begins a sleep of the background goroutine, which has the seat, on the bell.
func (s Seat) Doze() Seat { return s&^holders | dozing }

// Rise ends that sleep.
func (s Seat) Rise() Seat { return s&^holders | background }

// Leave gives up the seat. Its holder calls it.
func (s Seat) Leave() Seat { return s &^ holders }

// Looks clears the news. The holder calls it before it looks.
func (s Seat) Looks() Seat { return s &^ news }

// Park notes a waiter that goes to sleep. The waiter does not sleep if it then finds the seat Open.
func (s Seat) Park() Seat { return s | parked }

// Unpark notes that the last parked waiter sleeps no more.
func (s Seat) Unpark() Seat { return s &^ parked }

// Open reports that a waiter can take the seat.
func (s Seat) Open() bool { return s.Free() && !s.Wanted() }

// Wake brings news.
func (s Seat) Wake() Seat { return s | news }

// Close begins Shutdown, which wants the seat and rings for its holder. Only the first call has an effect.
func (s Seat) Close() (after Seat, first bool) { return s | closing | wanted, !s.Closing() }

// Last lets Shutdown take the seat.
func (s Seat) Last() (after Seat, ok bool) {
	if !s.Free() {
		return s, false
	}
	return s&^wanted | waiter, true
}

// orphaned reports that there is something to do and nobody drives.
func (s Seat) orphaned() bool {
	return s.Open() && (s.Pending() > 0 || s.News()) && !s.Closing()
}

// Successor is what a thread does to find the next driver.
type Successor uint8

// What a thread does that leaves the seat, or that leaves an operation to others.
const (
	Nobody     Successor = iota // nothing: somebody drives, or there is nothing to do
	WakeParked                  // wake the waiter that has been parked for longest; Kick if there is none any more
	Kick                        // kick the background goroutine
)

var successors = [...]string{"nobody", "wake a parked waiter", "kick"}

func (n Successor) String() string { return successors[n] }

// Next is the thread that is to drive next. The background goroutine does not kick itself: it comes back after a nap.
func (s Seat) Next() Successor {
	switch {
	case !s.orphaned():
		return Nobody
	case s.Parked():
		return WakeParked
	}
	return Kick
}

const (
	// ClaimTries is how often a waiter tries to take the seat that it has claimed, before it parks. It gives its core
	// away between two tries. So all tries take some 50 to 100 µs, and longer if other threads want the core. In that
	// time the background goroutine ends a step of a small operation and leaves the seat, so nobody needs to be woken.
	// No measurement is kept that tells this number from others of its order.
	ClaimTries = 200
	// LongestPark is the time after which a parked waiter looks by itself whether somebody drives. It is woken before
	// that, so the time does not matter unless a wake-up is lost.
	LongestPark = time.Second
)

// AsideYields reports that the background goroutine hands the seat over: it has nothing to do, or somebody wants it.
func (s Seat) AsideYields() bool { return s.Pending() == 0 || s.Sought() }

// Sought reports that somebody wants the seat from the background goroutine.
func (s Seat) Sought() bool { return s.Wanted() || s.Claimed() || s.Parked() }

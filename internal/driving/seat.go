package driving

// Seat says in one word who drives and what is to be done. So a change is one atomic step of the caller, which reads
// its consequences off the new value. It has
//
//	holder   FREE, WAITER (also a polling program, or Shutdown), BACKGROUND, DOZING (the background goroutine, asleep
//	         on the bell)
//	wanted   Shutdown wants the seat: nobody else takes it, and its holder hands it over
//	closing  Shutdown has begun: nobody needs a kick any more
//	news     Wake was called, and nobody has looked since
//	parked   waiters sleep until somebody drives no more, or their operations have ended
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

	// OneClaim is added for each waiter that claims the seat, of fewer than 2^24.
	OneClaim   Seat = 1 << 8
	maxClaims  Seat = 1<<24 - 1
	claimShift      = 8
	// OnePending is added for each operation that is submitted, of fewer than 2^32.
	OnePending   Seat = 1 << 32
	pendingShift      = 32
)

// Pending is the number of operations that have not ended.
func (s Seat) Pending() int { return int(s >> pendingShift) }

// Free reports that nobody drives.
func (s Seat) Free() bool { return s&holders == free }

// Aside reports that the background goroutine drives, awake or not.
func (s Seat) Aside() bool { return s&holders >= background }

// Dozing reports that it sleeps on the bell: a claim rings.
func (s Seat) Dozing() bool { return s&holders == dozing }

// Wanted reports that Shutdown wants the seat.
func (s Seat) Wanted() bool { return s&wanted != 0 }

// Closing reports that Shutdown has begun.
func (s Seat) Closing() bool { return s&closing != 0 }

// News reports that Wake was called, and nobody has looked since.
func (s Seat) News() bool { return s&news != 0 }

// Parked reports that waiters sleep while somebody drives: whoever leaves the seat wakes one of them to take it.
func (s Seat) Parked() bool { return s&parked != 0 }

// Claimed reports that a waiter wants the seat from the background goroutine.
func (s Seat) Claimed() bool { return s>>claimShift&maxClaims != 0 }

// Wait is a waiter that takes the seat. ok is false if somebody has it, or Shutdown wants it.
func (s Seat) Wait() (after Seat, ok bool) { return s.take(waiter) }

// Attend is the background goroutine that takes the seat after a nap. It leaves it to those that wait, and does not
// take it for nothing.
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

// Doze and Rise are the background goroutine's, which has the seat, around a sleep on the bell.
func (s Seat) Doze() Seat { return s&^holders | dozing }

// Rise ends what Doze began.
func (s Seat) Rise() Seat { return s&^holders | background }

// Leave is the holder that gives the seat up.
func (s Seat) Leave() Seat { return s &^ holders }

// Looks is the holder that begins to look: the news are seen.
func (s Seat) Looks() Seat { return s &^ news }

// Park is a waiter that goes to sleep. It does not if it then finds the seat Open.
func (s Seat) Park() Seat { return s | parked }

// Unpark is the last waiter that sleeps no more.
func (s Seat) Unpark() Seat { return s &^ parked }

// Open reports that a waiter can take the seat.
func (s Seat) Open() bool { return s.Free() && !s.Wanted() }

// Wake brings news.
func (s Seat) Wake() Seat { return s | news }

// Close is Shutdown that begins: it wants the seat. Its holder is rung for. Only the first has an effect.
func (s Seat) Close() (after Seat, first bool) { return s | closing | wanted, !s.Closing() }

// Last is Shutdown that takes the seat.
func (s Seat) Last() (after Seat, ok bool) {
	if !s.Free() {
		return s, false
	}
	return s&^wanted | waiter, true
}

// Orphaned reports that there is something to do and nobody to do it: the thread that finds this so
// wakes a parked waiter, or else kicks the background goroutine.
func (s Seat) Orphaned() bool {
	return s.Open() && (s.Pending() > 0 || s.News()) && !s.Closing()
}

// AsideYields reports that the background goroutine hands the seat over: it has nothing to do, or somebody wants it.
func (s Seat) AsideYields() bool { return s.Pending() == 0 || s.Sought() }

// Sought reports that somebody wants the seat from the background goroutine.
func (s Seat) Sought() bool { return s.Wanted() || s.Claimed() || s.Parked() }

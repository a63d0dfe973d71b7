package tcp

import "sync/atomic"

// state says who has a connection. The package comment shows the states.
type state uint32

// The states of a connection.
const (
	held      state = iota // by its goroutine, which may block
	lent                   // to the driver, which may not block
	returning              // to its goroutine; nobody begins a system call, but one may still go on
	closed
	states = iota
)

var stateNames = [states]string{"held", "lent", "returning", "closed"}

func (s state) String() string { return stateNames[s] }

// event is something that happens to a connection.
type event uint8

// The events of a connection, and who causes them.
const (
	lending    event = iota // its goroutine, once
	recalling               // the driver, the keeper, or any goroutine that needs it held
	takingBack              // its goroutine
	closing                 // any goroutine, once it is held; its own goroutine, if the connection cannot be taken back
	events     = iota
)

// never marks an event that has no effect in a state.
const never state = states

// transitions are all possible changes, by state and event.
var transitions = [states][events]state{
	held:      {lending: lent, recalling: never, takingBack: never, closing: closed},
	lent:      {lending: never, recalling: returning, takingBack: held, closing: never},
	returning: {lending: never, recalling: never, takingBack: held, closing: never},
	closed:    {lending: never, recalling: never, takingBack: never, closing: never},
}

// after is the state after an event. ok is false if the event has no effect.
func (s state) after(e event) (next state, ok bool) {
	next = transitions[s][e]
	return next, next != never
}

// custody is a state that changes by events alone.
type custody struct{ now atomic.Uint32 }

func (c *custody) is(s state) bool { return state(c.now.Load()) == s }

// happens notes an event, and reports whether it has an effect.
func (c *custody) happens(e event) bool {
	for {
		now := c.now.Load()
		next, ok := state(now).after(e)
		if !ok || c.now.CompareAndSwap(now, uint32(next)) {
			return ok
		}
	}
}

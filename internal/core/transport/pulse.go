package transport

import "time"

// Pulsed has connections to other hosts. Such a connection can be cut without notice to either end. Its methods are
// safe on any goroutine and do not block.
type Pulsed interface {
	// Beat lets the hosts at both ends of every connection send each other signs of life from now on. It returns the
	// connections over which nothing has come since. A host answers whatever its processes do.
	Beat(every time.Duration) []Silence
	// Rest ends the signs of life: idle connections are silent again.
	Rest()
}

// Silence says that nothing has come over a connection for some time.
type Silence struct {
	Rank int
	Addr string
	For  time.Duration
	// Stuck is the size of full packets of this end, if some wait for an answer; 0 if none do.
	Stuck int
}

package transport

import "time"

// Pulsed is what has connections to other hosts, which can be cut without either
// end being told. Its methods are safe on any goroutine and do not block.
type Pulsed interface {
	// Beat has the hosts at both ends of every connection make signs of life to
	// each other, every so often from now on, and tells what has been silent since that
	// began. A host answers whatever its processes do.
	Beat(every time.Duration) []Silence
	// Rest ends that: connections on which nothing moves are silent again.
	Rest()
}

// Silence says that nothing has come over a connection for some time.
type Silence struct {
	Rank int
	Addr string
	For  time.Duration
}

// Package pulse tells whether the host at the other end of a TCP connection still answers. It asks the kernel what the
// other kernel has acknowledged. So the state of the process there does not matter, and the connection's own protocol
// is not used.
package pulse

import "time"

// Pulse watches the other end of one connection. Its methods are not safe for concurrent use.
type Pulse struct {
	// Idle is how often the kernels talk while nobody asks for more: a firewall between them forgets a connection over
	// which nothing passes. 0: never.
	Idle  time.Duration
	since time.Time
}

// Beat makes the kernels at both ends talk every so often from now on, and returns how long the other kernel has not
// answered since then: 0 at first.
func (p *Pulse) Beat(fd int, every time.Duration) time.Duration {
	now := time.Now()
	if p.since.IsZero() {
		if keepAlive(fd, every) == nil {
			p.since = now
		}
		return 0
	}
	silent, err := Silence(fd)
	if err != nil {
		return 0 // the connection is being closed
	}
	return min(silent, now.Sub(p.since))
}

// Rest ends the talk that Beat began, but for that of Idle.
func (p *Pulse) Rest(fd int) {
	if !p.since.IsZero() {
		keepAlive(fd, p.Idle)
		p.since = time.Time{}
	}
}

// Start begins the talk of Idle on a new connection.
func (p *Pulse) Start(fd int) { keepAlive(fd, p.Idle) }

// Package pulse tells whether the host at the other end of a TCP connection still
// answers. It asks the kernel what the other kernel has acknowledged. So it does not
// matter what the process there does, and the connection's own protocol is not used.
package pulse

import "time"

// Pulse is what is known of the life at the other end of one connection. Its
// methods are not safe for concurrent use.
type Pulse struct{ since time.Time }

// Beat has the kernels at both ends talk every so often from now on, and returns
// for how long the other one has not answered meanwhile: 0 at first.
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
		return 0 // it is being closed
	}
	return min(silent, now.Sub(p.since))
}

// Rest ends that.
func (p *Pulse) Rest(fd int) {
	if !p.since.IsZero() {
		keepAlive(fd, 0)
		p.since = time.Time{}
	}
}

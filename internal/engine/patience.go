package engine

import "time"

// patience is how long a caller goes on waiting. It begins when somebody first asks how much of it is left: what ends
// before that is not worth a look at the clock, which takes longer than a step of a small operation.
type patience struct {
	most  time.Duration
	began time.Time
}

// left is what is left of it at now.
func (p *patience) left(now time.Time) time.Duration {
	if p.began.IsZero() {
		p.began = now
	}
	return p.most - now.Sub(p.began)
}

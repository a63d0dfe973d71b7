package engine

import "time"

// timeout is how long a caller goes on waiting. It begins when somebody first asks how much of it is left: what ends
// before that is not worth a look at the clock, which takes longer than a step of a small operation.
type timeout struct {
	most  time.Duration
	began time.Time
}

// left is what is left of it at now.
func (t *timeout) left(now time.Time) time.Duration {
	if t.began.IsZero() {
		t.began = now
	}
	return t.most - now.Sub(t.began)
}

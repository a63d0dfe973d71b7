package engine

import "time"

// timeout is how long a caller goes on waiting. It begins with the first call of left, because a look at the clock
// takes longer than a step of a small operation.
type timeout struct {
	most  time.Duration
	began time.Time
}

// left is the time that remains at now.
func (t *timeout) left(now time.Time) time.Duration {
	if t.began.IsZero() {
		t.began = now
	}
	return t.most - now.Sub(t.began)
}

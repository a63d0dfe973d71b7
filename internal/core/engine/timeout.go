package engine

import "time"

// timeout is how long a caller goes on waiting. It begins with the first call of left, because a look at the clock
// takes longer than a step of a small operation.
type timeout struct {
	most  time.Duration
	began moment
}

// left is the time that remains at now.
func (t *timeout) left(now moment) time.Duration {
	if t.began == 0 {
		t.began = now
	}
	return t.most - now.since(t.began)
}

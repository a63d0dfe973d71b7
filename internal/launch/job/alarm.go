package job

import "time"

// alarm is a timer that a loop sets anew in each turn. The zero value is ready.
type alarm struct {
	timer *time.Timer
}

// at returns a channel that gets a value at that time; nil if ok is false. It replaces the channel of the last call.
func (a *alarm) at(when time.Time, ok bool) <-chan time.Time {
	switch {
	case !ok:
		return nil
	case a.timer == nil:
		a.timer = time.NewTimer(time.Until(when))
	default:
		a.timer.Reset(time.Until(when))
	}
	return a.timer.C
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

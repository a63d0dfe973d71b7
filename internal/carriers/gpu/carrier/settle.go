package carrier

import (
	"fmt"
	"sync"
	"time"
)

// Settled implements engine.Devices.
func (d *Devices) Settled() (bool, error) {
	return d.settles.over(d, d.watch.allSettled(), "that have ended for a program which leaves the job")
}

// Settle waits until the device has done all operations that have ended for the program, so that their results can be
// relied on, and reports whether the wait is over. A timeout below 0 is none. If the job fails before the device has
// done them, or before that is known, Settle returns the cause. If they do not end, Settle ends the job. The program
// calls it, on any thread.
func (d *Devices) Settle(timeout time.Duration) (bool, error) {
	if !d.options.Async {
		return true, nil
	}
	for began := time.Now(); ; time.Sleep(betweenHurried) {
		if d.watch.allSettled() && !d.watch.doubtful.Load() {
			d.keeps.end()
			return true, nil
		}
		if cause := d.aborted(); cause != nil && d.watch.doubtful.Load() {
			return true, cause
		}
		if err := d.keeps.late(d); err != nil {
			return true, err
		}
		if timeout >= 0 && time.Since(began) >= timeout {
			d.watch.hurries.Store(false) // until the next call
			return false, nil
		}
	}
}

// keeping is the wait of a program that wants to keep results. It may take several calls of Settle.
type keeping struct {
	mu    sync.Mutex
	wait  settling
	asked time.Time
}

// anotherWait is the time after which a call of Settle does not continue the wait of the call before.
const anotherWait = time.Second

func (k *keeping) end() {
	k.wait.reset()
}

// late ends the job, and returns the cause, if the wait has taken too long.
func (k *keeping) late(d *Devices) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.asked) > anotherWait {
		k.wait.reset()
	}
	k.asked = time.Now()
	_, err := k.wait.over(d, false, "whose results the program is about to keep")
	return err
}

// settling is a wait for operations that have ended for the program, until the device has done them.
type settling struct {
	mu    sync.Mutex
	since time.Time
}

// reset ends the wait.
func (s *settling) reset() {
	s.mu.Lock()
	s.since = time.Time{}
	s.mu.Unlock()
}

// begun returns when the wait began: now, if it was not under way.
func (s *settling) begun() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = time.Now()
	}
	return s.since
}

// over reports whether the wait is over. The device may take as long as a call of CUDA that waits for it. After a
// failure of the device, over waits for the abort that follows.
func (s *settling) over(d *Devices, settled bool, which string) (bool, error) {
	if settled && !d.watch.doubtful.Load() || d.aborted() != nil {
		return true, nil
	}
	longest := inUse * d.options.Deadline
	if time.Since(s.begun()) < longest {
		return false, nil
	}
	return false, d.lose(fmt.Errorf("the device of %s has not done the operations %s for %v; look for a kernel of the "+
		"program that does not end, or set a larger HOROVOD_GLOO_TIMEOUT_SECONDS, of which this is four times",
		d.options.Describe(d.options.Rank), which, longest))
}

// lose ends the job since results of operations that have ended for the program are lost. It returns the cause.
func (d *Devices) lose(cause error) error {
	cause = fmt.Errorf("results that HOROVOD_ENABLE_ASYNC_COMPLETION=1 has promised are lost: %w", cause)
	d.options.Log.Error(cause.Error())
	d.Abort(cause)
	if d.options.Abort != nil {
		d.options.Abort(cause)
	}
	return cause
}

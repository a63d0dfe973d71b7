package carrier

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/guard"
)

// search is a look for something of the System. It may hang, in a library that is being loaded or started, so it runs
// on a goroutine of its own. All who need the result at a time wait for the same attempt.
type search[T any] struct {
	mu      sync.Mutex
	attempt *attempt[T] // under way, too late, or successful; nil: the next one who asks begins
}

type attempt[T any] struct {
	ended  chan struct{} // closed when result and err are there
	ends   sync.Once
	result T
	err    error
}

// find returns what f finds, or has found before. It waits until inUse deadlines have passed since the attempt's begin,
// and in an aborted job not at all. An attempt that is too late counts as failed for good, also if it ends later. After
// another failure the next caller tries again.
func (s *search[T]) find(d *Devices, f func() (T, error)) (T, error) {
	a := s.join(d, f)
	select {
	case <-a.ended:
		return a.result, a.err
	case <-d.ends:
		return *new(T), d.aborted()
	}
}

func (s *search[T]) join(d *Devices, f func() (T, error)) *attempt[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempt != nil {
		return s.attempt
	}
	a := &attempt[T]{ended: make(chan struct{})}
	if err := d.stuck(); err != nil {
		a.end(*new(T), err)
		return a
	}
	s.attempt = a
	s.begin(d, a, f)
	return a
}

func (s *search[T]) begin(d *Devices, a *attempt[T], f func() (T, error)) {
	longest := inUse * d.options.Deadline
	slow := time.AfterFunc(d.options.Deadline, func() {
		d.options.Log.Warn(fmt.Sprintf("tensors of devices wait: %v; it may take %v", d.silent(d.options.Deadline),
			longest))
	})
	late := time.AfterFunc(longest, func() { a.end(*new(T), d.silent(longest)) })
	failed := func(err error) {
		slow.Stop()
		a.end(*new(T), err)
	}
	guard.Go("the search for CUDA and NCCL", failed, func() {
		result, err := f()
		slow.Stop()
		late.Stop()
		if a.end(result, err) && err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.attempt = nil
		}
	})
}

// end notes the result, and reports whether it is the first.
func (a *attempt[T]) end(result T, err error) (first bool) {
	a.ends.Do(func() {
		a.result, a.err, first = result, err, true
		close(a.ended)
	})
	return first
}

// stuck returns the error of a search if a search of an earlier world already hangs, and so would this one.
func (d *Devices) stuck() error {
	if _, since := d.system.Underway(); since > inUse*d.options.Deadline {
		return d.silent(since.Round(time.Second))
	}
	return nil
}

// silent is the error of a call of CUDA or NCCL that has not returned for some time.
func (d *Devices) silent(since time.Duration) error {
	call, _ := d.system.Underway()
	return fmt.Errorf("%s has not returned for %v: look at nvidia-smi and at that file, or set GOROVOD_GPU=staged to "+
		"do without NCCL", cmp.Or(call, "a call of CUDA"), since)
}

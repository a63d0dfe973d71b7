package carrier

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// search is a look for something of the System. It may hang, in a library that is being loaded or started, so it runs
// on a goroutine of its own. All who need the result at a time wait for the same attempt.
type search[T any] struct {
	without string // calls with this prefix are of no concern

	mu      sync.Mutex
	attempt *attempt[T] // under way, too late, or successful; nil: the next one who asks begins
}

// attempt belongs to a search, whose mu guards it until it has ended.
type attempt[T any] struct {
	over   bool
	ended  chan struct{} // closed when result and err are there
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
	if a.err = d.stuck(s.without); a.err != nil {
		close(a.ended)
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
	returned := make(chan struct{})
	late := time.AfterFunc(longest, func() {
		err := d.silent(longest)
		d.loaderHangs(err, returned)
		s.end(a, *new(T), err, true)
	})
	failed := func(err error) { s.end(a, *new(T), err, false) }
	guard.Go("the search for CUDA and NCCL", failed, func() {
		defer slow.Stop()
		defer late.Stop()
		defer close(returned)
		result, err := f()
		s.end(a, result, err, false)
	})
}

// end notes the result, unless there is one. After a failure that is not final the next caller tries again.
func (s *search[T]) end(a *attempt[T], result T, err error, final bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.over {
		return
	}
	if a.over, a.result, a.err = true, result, err; err != nil && !final {
		s.attempt = nil
	}
	close(a.ended)
}

// stuck returns the error of a search if a search of an earlier world already hangs, and so would this one. Calls with
// the prefix without, if it is not empty, are of no concern.
func (d *Devices) stuck(without string) error {
	call, since := d.system.Underway()
	if since > inUse*d.options.Deadline && (without == "" || !strings.HasPrefix(call, without)) {
		return d.silent(since.Round(time.Second))
	}
	return nil
}

// loaderHangs ends the job if a call of the dynamic loader has lasted for a deadline, and the process if that has not
// returned after another deadline: the loader holds its lock, so the program could import nothing more, nor exit.
func (d *Devices) loaderHangs(late error, returned <-chan struct{}) {
	o := &d.options
	call, lasts := d.system.Underway()
	if !strings.HasPrefix(call, "dlopen ") || lasts < o.Deadline || o.Abort == nil {
		return // else what came before it was slow
	}
	cause := fmt.Errorf("%s cannot go on: %w", o.Describe(o.Rank), late)
	d.Abort(cause) // now, so that nobody takes the failed search for the lack of a library
	o.Abort(cause)
	time.AfterFunc(o.Deadline, func() {
		select {
		case <-returned:
		default:
			if o.End != nil {
				o.End(fmt.Errorf("%w; this process cannot go on, and ends", late))
			}
		}
	})
}

// silent is the error of a call of CUDA or NCCL that has not returned for some time.
func (d *Devices) silent(since time.Duration) error {
	call, lasts := d.system.Underway()
	if call != "" && lasts < since-2*betweenQuestions {
		since = lasts.Round(time.Millisecond) // another call came before it
	}
	return fmt.Errorf("%s has not returned for %v: look at nvidia-smi and at that file", cmp.Or(call, "a call of CUDA"),
		since)
}

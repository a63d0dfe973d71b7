package carrier

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/gpu/cuda"
)

// slow is a system in which the making of a context lasts until it is told how that ends.
type slow struct {
	System
	began chan int
	ends  chan error
}

func (s *slow) Context(device int) (Context, error) {
	s.began <- device
	if err := <-s.ends; err != nil {
		return nil, err
	}
	return &counted{reached: make(map[cuda.Event]bool)}, nil
}

// While a context is made, an abort, the end and questions about tensors do not wait. Other users of the device do.
func TestSlowContext(t *testing.T) {
	s := &slow{began: make(chan int), ends: make(chan error)}
	aborts := make(chan error, 1)
	d := New(s, Options{Deadline: 10 * time.Millisecond, Abort: func(cause error) { aborts <- cause }})
	found := make(chan error)
	use := func() { found <- d.Usable(0) }
	go use()
	<-s.began
	go use()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Abort(errors.New("rank 7 is dead"))
		if d.GiveBack(0, 1, 1, 0) {
			t.Error("memory of a device that is not in use is taken back")
		}
		_ = d.Refuse(&Tensor{})
		d.Close()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatal("an abort waits for the making of a context")
	}
	if cause := <-aborts; !strings.Contains(cause.Error(), "rank 0 makes its context of a CUDA device") {
		t.Error(cause)
	}
	s.ends <- errors.New("no memory") // the second one tries now
	if err := <-found; err == nil {
		t.Error("there is a device without a context")
	}
	<-s.began
	s.ends <- nil
	if err := <-found; err != nil {
		t.Error(err)
	}
	if err := d.Usable(1); err == nil {
		t.Error("a process has two devices")
	}
}

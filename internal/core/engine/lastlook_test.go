package engine

import (
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// A rank that nobody drives does in LastLook what needs nothing more of the others, and does not wait in it for them.
func TestLastLook(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	e := engines[1]
	broadcast := func(name string, data []byte) *Op {
		return &Op{Type: operation.Broadcast, DType: tensor.Float32, Name: name, Shape: tensor.Shape{1}, In: data,
			Out: data, WillWait: true} // the root does not wait for the others
	}
	e.LastLook(limit) // nothing is pending
	out := floats(0)
	en, err := e.Enqueue(broadcast("x", out))
	if err != nil {
		t.Fatal(err)
	}
	if err := do(t, engines[0], broadcast("x", floats(7))); err != nil {
		t.Fatal(err)
	}
	if en.Done() {
		t.Error("somebody drives")
	}
	e.LastLook(limit)
	if !en.Done() || en.Err() != nil || float(out, 0) != 7 {
		t.Errorf("done %v, %v, %v", en.Done(), en.Err(), float(out, 0))
	}
	en.Release()
	if en, err = e.Enqueue(broadcast("never", out)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	e.LastLook(limit)
	if en.Done() || time.Since(began) > limit/2 {
		t.Errorf("done %v after %v", en.Done(), time.Since(began))
	}
	en.Release()
}

// A call that comes amid another one's look gets a look of its own, because that look may have begun too early for it.
func TestLastLookIsItsOwn(t *testing.T) {
	e := newWorld(t, 2, true, nil)[0]
	op := sum("x", floats(1))
	op.WillWait = true // so that nobody drives
	en := enqueue(t, e, op)
	defer en.Release()
	earlier := &lastLook{over: make(chan struct{})}
	e.look.Store(earlier)
	over := make(chan struct{})
	go func() {
		defer close(over)
		e.LastLook(limit)
	}()
	select {
	case <-over:
		t.Error("shared the look of an earlier call")
	case <-time.After(50 * time.Millisecond):
	}
	e.looked(earlier)
	select {
	case <-over:
	case <-time.After(limit / 2):
		t.Error("got no look")
	}
}

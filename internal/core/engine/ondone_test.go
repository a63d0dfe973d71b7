package engine

import (
	"sync/atomic"
	"testing"
)

// OnDone calls its callback once, whether the operation has ended or ends at that moment, and accepts only one
// callback.
func TestOnDone(t *testing.T) {
	for range 200 {
		var calls atomic.Int32
		called := make(chan struct{})
		e := &Entry{engine: new(Engine)}
		e.refs.Store(2) // the holder's and the engine's
		finished := make(chan struct{})
		go func() {
			e.finish(nil)
			close(finished)
		}()
		if err := e.OnDone(func(got *Entry) {
			if got != e || !got.Done() {
				t.Error("called for another operation, or before its end")
			}
			calls.Add(1)
			close(called)
		}); err != nil {
			t.Fatal(err)
		}
		if err := e.OnDone(func(*Entry) { calls.Add(1) }); err == nil {
			t.Fatal("a second callback was taken")
		}
		<-called
		<-finished
		if n := calls.Load(); n != 1 {
			t.Fatalf("called %d times", n)
		}
	}
}

package engine

import (
	"testing"
	"time"
)

// A program that asks again and again, and never sleeps, does the work itself. Here nobody else does any.
func TestAProgramThatSpinsDrives(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	for _, e := range engines {
		close(e.quit)
		<-e.stopped
	}
	defer func() { // for the shutdown
		for _, e := range engines {
			e.quit, e.stopped = make(chan struct{}), make(chan struct{})
			go e.background()
		}
	}()
	each(engines, func(r int, e *Engine) {
		en, err := e.Enqueue(sum("spun", floats(float32(r+1))))
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
			return
		}
		defer en.Release()
		for deadline := time.Now().Add(limit); !en.Poll(); {
			if time.Now().After(deadline) {
				t.Errorf("rank %d: asking does not drive", r)
				return
			}
		}
		if en.Err() != nil || !e.mood().Spinning {
			t.Errorf("rank %d: %v, spinning %v", r, en.Err(), e.mood().Spinning)
		}
	})
}

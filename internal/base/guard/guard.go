// Package guard turns a panic on a goroutine of the engine into an error with the stack. The goroutine's owner aborts
// with it, so the other ranks learn the cause. The packages inside a rank start every goroutine through guard (see its
// test). A fatal error of the Go runtime cannot be recovered: it ends the process, and the peers name the process.
package guard

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// Go runs f on a goroutine of its own. If f panics, failed gets the error, on that goroutine, after f's deferred calls.
func Go(what string, failed func(error), f func()) {
	go func() {
		defer Recover(what, failed)
		f()
	}()
}

// In is Go for a goroutine that group waits for.
func In(group *sync.WaitGroup, what string, failed func(error), f func()) {
	group.Add(1)
	go func() {
		defer group.Done()
		defer Recover(what, failed)
		f()
	}()
}

// Recover, deferred, passes a panic to failed, in the form of Caught.
func Recover(what string, failed func(error)) {
	if err := Caught(what, recover()); err != nil {
		failed(err)
	}
}

// maxFrames is how many callers an error names.
const maxFrames = 8

// Caught makes a one-line error of recover's result: where the panic was, what was wrong, and the callers. Call it in a
// deferred function. It returns nil for nil.
func Caught(what string, p any) error {
	if p == nil {
		return nil
	}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var calls []string
	thrown := false // frames before the panic are the deferred ones
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			thrown = thrown || f.Function == "runtime.gopanic"
		case thrown && len(calls) < maxFrames:
			calls = append(calls, fmt.Sprintf("%s (%s:%d)", f.Function[strings.LastIndexByte(f.Function, '/')+1:],
				filepath.Base(f.File), f.Line))
		}
		if !more {
			return fmt.Errorf("panic in %s: %v; in %s", what, p, strings.Join(calls, " < "))
		}
	}
}

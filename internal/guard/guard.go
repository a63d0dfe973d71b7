// Package guard keeps a panic on one goroutine of the engine from ending the
// process without a word to the other ranks: it becomes an error with the stack,
// which the goroutine's owner makes an abort of. Every goroutine of the packages
// that run inside a rank is started through it (see its test); a fatal error of
// the Go runtime cannot be recovered, and ends the process, which its peers name.
package guard

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// Go runs f on a goroutine of its own. What f panics with is given to failed, on
// that goroutine, after f's deferred calls.
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

// Recover, deferred, gives a panic to failed, as Caught has it.
func Recover(what string, failed func(error)) {
	if err := Caught(what, recover()); err != nil {
		failed(err)
	}
}

// Caught makes an error of what recover has returned: where it was, what was wrong,
// and the stack. Nil for nil.
func Caught(what string, p any) error {
	if p == nil {
		return nil
	}
	return fmt.Errorf("panic in %s: %v\n%s", what, p, debug.Stack())
}

package engine

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/guard"
)

// catch makes the error of what a driver panicked with. A driver lets a fault
// panic (debug.SetPanicOnFault): one in an operation's memory is the program's,
// which has freed it too early, and no reason to end this process.
func (e *Engine) catch(p any) error {
	who := e.opts.Describe(e.opts.Rank)
	if fault, ok := p.(interface{ Addr() uintptr }); ok {
		e.mu.Lock()
		user := e.inUse.userOf(fault.Addr())
		e.mu.Unlock()
		if user != nil {
			return fmt.Errorf("%s: the program has freed or unmapped the memory of %s, at %#x, before the "+
				"operation ended", who, describe(user), fault.Addr())
		}
	}
	return guard.Caught("the engine of "+who, p)
}

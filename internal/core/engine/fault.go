package engine

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// catch turns a driver's panic into an error. A driver lets a memory fault panic (debug.SetPanicOnFault). If the fault
// is in an operation's memory, the program has freed that memory too early: an error for its ranks, but no reason to
// end this process.
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

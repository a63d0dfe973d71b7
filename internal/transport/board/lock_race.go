//go:build race

package board

import (
	"runtime"
	"unsafe"
)

// The race detector sees no atomic operation on memory that Go has not allocated, as a segment is. So it is told of the
// lock, which orders what goroutines of one process do with a Board value.

func (b *Board) lock(member int) error {
	if !b.regs.lock.CompareAndSwap(0, uint32(member)+1) {
		if err := b.awaitLock(member); err != nil {
			return err
		}
	}
	runtime.RaceAcquire(unsafe.Pointer(&b.own))
	return nil
}

func (b *Board) unlock() {
	runtime.RaceRelease(unsafe.Pointer(&b.own))
	b.regs.lock.Store(0)
}

//go:build race

package board

import (
	"runtime"
	"unsafe"
)

// The race detector does not see atomic operations on memory that Go has not allocated, such as a segment. So lock and
// unlock tell it of the lock, which orders the accesses of one process's goroutines to a Board value.

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

//go:build !race

package board

func (b *Board) lock(member int) error {
	if b.regs.lock.CompareAndSwap(0, uint32(member)+1) {
		return nil
	}
	return b.awaitLock(member)
}

func (b *Board) unlock() { b.regs.lock.Store(0) }

package board

import (
	"fmt"
	"runtime"
	"time"
)

// A member waits for the lock in three steps:
//  1. It spins. That suffices while the holder runs.
//  2. It yields, so that the holder can run if there are more members than cores.
//  3. It sleeps, if the holder is stopped.
const (
	lockSpins  = 128
	lockYields = 64
	lockNap    = 20 * time.Microsecond
	lockMaxNap = time.Millisecond
	// lockMaxNaps bounds the wait for one holder: some 5 s, for work of a microsecond. It counts naps and not time,
	// because the machine may be suspended meanwhile.
	lockMaxNaps = 5000
)

// awaitLock takes the lock for a member that has found it taken. The functions lock and unlock depend on the build.
func (b *Board) awaitLock(member int) error {
	w := &b.regs.lock
	nap, naps, former := lockNap, 0, uint32(0)
	for i := 0; ; i++ {
		holder := w.Load()
		if holder != former {
			former, naps = holder, 0
		}
		if holder == 0 {
			if w.CompareAndSwap(0, uint32(member)+1) {
				return nil
			}
			continue
		}
		switch {
		case i < lockSpins && !b.crowded:
		case i < lockSpins+lockYields:
			runtime.Gosched() // the holder may be a goroutine of this process,
			yieldThread()     // or another process
		default:
			if int64(holder) > int64(b.cfg.Members) {
				return fmt.Errorf("%w: lock held by member %d of %d", ErrCorrupt, int64(holder)-1, b.cfg.Members)
			}
			if err := b.stop(); err != nil {
				return fmt.Errorf("board: waiting for the lock, held by member %d: %w", holder-1, err)
			}
			if naps++; naps > lockMaxNaps {
				return fmt.Errorf("board: member %d has held the lock for seconds: its process is stopped, or "+
					"the board is corrupt", holder-1)
			}
			time.Sleep(nap)
			nap = min(2*nap, lockMaxNap)
		}
	}
}

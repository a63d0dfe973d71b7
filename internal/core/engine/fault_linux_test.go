package engine

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFreedMemoryIsNoCrash: if the program unmaps memory under an operation, all ranks get an error that says so, and
// this process goes on, whichever thread drives.
func TestFreedMemoryIsNoCrash(t *testing.T) {
	for name, wait := range map[string]func(e *Engine, en *Entry) bool{
		"waiter":     func(e *Engine, en *Entry) bool { return e.Wait(en, limit) },
		"background": func(e *Engine, en *Entry) bool { return until(en.Done) },
	} {
		t.Run(name, func(t *testing.T) {
			const size = 1 << 20
			engines := makeWorld(t, 2, true, nil)
			memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				t.Fatal(err)
			}
			en, failure := engines[0].Enqueue(sum("freed", memory))
			if failure != nil {
				t.Fatal(failure)
			}
			if err := unix.Munmap(memory); err != nil {
				t.Fatal(err)
			}
			other, failure := engines[1].Enqueue(sum("freed", make([]byte, size)))
			if failure != nil {
				t.Fatal(failure)
			}
			for r, en := range []*Entry{en, other} {
				if !wait(engines[r], en) {
					t.Fatalf("rank %d: no end", r)
				}
				const want = `rank 0: the program has freed or unmapped the memory of Allreduce of tensor "freed", at 0x`
				if err := en.Err(); err == nil || err.Code != UnknownError || !strings.Contains(err.Reason, want) {
					t.Errorf("rank %d: %v", r, err)
				}
				en.Release()
			}
			each(engines, func(r int, e *Engine) { e.Shutdown(limit) })
		})
	}
}

// until polls until done returns true, and reports whether that happened within the limit.
func until(done func() bool) bool {
	for end := time.Now().Add(limit); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

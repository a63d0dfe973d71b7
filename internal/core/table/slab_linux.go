package table

import "golang.org/x/sys/unix"

// newSlab returns n bytes of zeros outside of Go's heap. The collector would otherwise let the heap grow to twice their
// size. The kernel uses huge pages for a large table, whose rows are read at random; a small one would waste them.
func newSlab(n int, large bool) ([]byte, error) {
	p, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err == nil && large {
		_ = unix.Madvise(p, unix.MADV_HUGEPAGE)
	}
	return p, err
}

func freeSlab(slab []byte) { _ = unix.Munmap(slab) }

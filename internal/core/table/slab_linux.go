package table

import "golang.org/x/sys/unix"

// newSlab returns n bytes of zeros outside of Go's heap. The collector would otherwise let the heap grow to twice their
// size.
func newSlab(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

func freeSlab(slab []byte) { _ = unix.Munmap(slab) }

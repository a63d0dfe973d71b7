package collective

import "golang.org/x/sys/unix"

// Buffer is memory outside of Go's heap that grows and is reused.
type Buffer struct{ mem []byte }

// Grow returns n bytes. Their contents are undefined. Memory that Grow returned before may no longer be used.
func (b *Buffer) Grow(n int) ([]byte, error) {
	if b.mem == nil || n > len(b.mem) {
		b.Free()
		size := max(1<<20, n+n/4)
		mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, err
		}
		b.mem = mem
	}
	return b.mem[:n], nil
}

// Free returns the memory.
func (b *Buffer) Free() {
	if b.mem != nil {
		_ = unix.Munmap(b.mem)
		b.mem = nil
	}
}

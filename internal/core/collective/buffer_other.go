//go:build !linux

package collective

// Buffer is memory that grows and is reused.
type Buffer struct{ mem []byte }

// Grow returns n bytes. Their contents are undefined. Memory that Grow returned before may no longer be used.
func (b *Buffer) Grow(n int) ([]byte, error) {
	if b.mem == nil || n > len(b.mem) {
		b.mem = make([]byte, max(1, n))
	}
	return b.mem[:n], nil
}

// Free returns the memory.
func (b *Buffer) Free() { b.mem = nil }

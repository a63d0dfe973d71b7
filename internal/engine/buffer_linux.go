package engine

import "golang.org/x/sys/unix"

// fusionBuffer is memory outside of Go's heap that grows and is reused.
type fusionBuffer struct{ mem []byte }

// grow returns n bytes. Their content is undefined; the previous ones are gone.
func (f *fusionBuffer) grow(n int) ([]byte, error) {
	if f.mem == nil || n > len(f.mem) {
		f.free()
		size := max(1<<20, n+n/4)
		mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, err
		}
		f.mem = mem
	}
	return f.mem[:n], nil
}

func (f *fusionBuffer) free() {
	if f.mem != nil {
		_ = unix.Munmap(f.mem)
		f.mem = nil
	}
}

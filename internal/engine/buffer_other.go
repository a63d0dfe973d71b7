//go:build !linux

package engine

// fusionBuffer is memory that grows and is reused.
type fusionBuffer struct{ mem []byte }

// grow returns n bytes. Their content is undefined; the previous ones are gone.
func (f *fusionBuffer) grow(n int) ([]byte, error) {
	if f.mem == nil || n > len(f.mem) {
		f.mem = make([]byte, max(1, n))
	}
	return f.mem[:n], nil
}

func (f *fusionBuffer) free() { f.mem = nil }

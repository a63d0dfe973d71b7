//go:build !linux

package table

// newSlab returns n bytes of zeros.
func newSlab(n int, _ bool) ([]byte, error) { return make([]byte, n), nil }

func freeSlab([]byte) {}

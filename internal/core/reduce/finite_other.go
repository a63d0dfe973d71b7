//go:build !amd64

package reduce

func finiteRange(v variant, _ exponents, _ []byte) uint64 {
	panic("reduce: no " + v.String() + " kernels on this processor")
}

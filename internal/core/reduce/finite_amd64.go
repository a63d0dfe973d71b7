package reduce

import "unsafe"

// finiteRange is carried with vectors. src is one or more whole blocks of finiteBlock bytes.
func finiteRange(v variant, e exponents, src []byte) uint64 {
	if v == avx512 {
		return carriedAVX512(unsafe.SliceData(src), len(src), e.all, e.lowest)
	}
	return carriedAVX2(unsafe.SliceData(src), len(src), e.all, e.lowest)
}

//go:noescape
func carriedAVX2(p *byte, n int, all, lowest uint64) uint64

//go:noescape
func carriedAVX512(p *byte, n int, all, lowest uint64) uint64

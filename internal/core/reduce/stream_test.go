package reduce

import (
	"bytes"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

func TestStreamCopies(t *testing.T) {
	rnd := source(t)
	for _, n := range []int{0, 1, 63, 64, streamLeast - 1, streamLeast, streamLeast + 1, 3*streamLeast + 77,
		callBytes + 129} {
		for _, off := range []int{0, 1, 31, 32, 63} {
			src := fill(rnd, tensor.Uint8, n, rnd.IntN(64))
			for _, v := range variants() {
				field := aligned(n+2*guard, off)
				for i := range field {
					field[i] = 0xa5
				}
				dst := field[guard : guard+n]
				streamWith(v, dst, src)
				if !bytes.Equal(dst, src) {
					t.Fatalf("%v: %d bytes to an address %d past a line: not a copy", v, n, off)
				}
				for i, x := range field {
					if (i < guard || i >= guard+n) && x != 0xa5 {
						t.Fatalf("%v: %d bytes to an address %d past a line: wrote at byte %d", v, n, off, i-guard)
					}
				}
			}
		}
	}
}

func TestStreamAllocatesNothing(t *testing.T) {
	src, dst := make([]byte, 1<<16), make([]byte, 1<<16)
	if n := testing.AllocsPerRun(10, func() { Stream(dst, src) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

package reduce

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// moves are the casts' loops without the conversion, by the sizes of the elements read and written.
var moves = map[[2]int]kernel{
	{2, 2}: move16To16, {2, 4}: move16To32, {2, 8}: move16To64,
	{4, 2}: move32To16, {4, 8}: move32To64,
	{8, 2}: move64To16, {8, 4}: move64To32,
}

// moveWith reads and writes the same bytes as castWith, in calls of the same length, except a rest of less than a turn.
func moveWith(v variant, to, from tensor.DType, dst, src []byte) {
	whole := len(dst) / to.Size() &^ (wideElements - 1)
	step := callBytes / max(to.Size(), from.Size())
	srcs := [1][]byte{src}
	for at := 0; at < whole; at += step {
		castRange(v, moves[[2]int{from.Size(), to.Size()}], dst, srcs[:], at, min(at+step, whole))
	}
}

// A move that left bytes out would be no fair comparison.
func TestMovesWriteAll(t *testing.T) {
	const n = 40 * wideElements
	for _, v := range variants() {
		if v == portable {
			continue
		}
		for _, from := range floats {
			for _, to := range floats {
				if from == to {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v to %v", v, from, to), func(t *testing.T) {
					src := bytes.Repeat([]byte{0x5a}, n*from.Size())
					dst, intact := guarded(n*to.Size(), 8)
					moveWith(v, to, from, dst, src)
					if bytes.IndexByte(dst, 0xa5) >= 0 { // the value that guarded has put there
						t.Error("not all of the destination was written")
					}
					if !intact() {
						t.Error("wrote beside the destination")
					}
				})
			}
		}
	}
}

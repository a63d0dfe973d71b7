package reduce

import (
	"encoding/binary"
	"math"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Quantised float32 are blocks of up to BlockElements numbers with one scale, a power of two, as in the format MXINT8
// (Open Compute Project, Microscaling Formats 1.0):
//
//	block    scale (one byte e) number number …   (signed bytes, -127 to 127)
//	value    number × 2^(e-127)
//	e = 255  a block with an infinity, a NaN or a number of at least 255/256 of float32's range: all its values are NaN
//
// The scale is the smallest with which the block's largest number stays in the range. Because scales are powers of two,
// products and errors are exact, and quantising a second time changes nothing.

// BlockElements is the length of a block; only an array's last block may be shorter.
const BlockElements = 32

const (
	blockBytes = 1 + BlockElements // of a quantised block
	noNumbers  = 255               // the scale of a block that has no finite values
	// A float32's bits plus almostTwo have the next exponent if its fraction is at least 127/128 of the way to it:
	// then 127 times the scale of its own exponent is too small.
	almostTwo = 1 << 16
	// infinite is the exponent of an infinity, in its place.
	infinite = 255 << 23
	// With the scale e-127 = exponent-6 a number between 1 and 2 times a power of two becomes a number from 64 to 127.
	scaleBelow = 6
	// toInt is added to a float32 to round it to an integer, which is then in its lowest bits.
	toInt = 3 << 22
)

// Quantised is the number of bytes of n quantised float32.
func Quantised(n int) int { return n + (n+BlockElements-1)/BlockElements }

// Quantise sets dst to the float32 of src + rest, quantised, and rest to the errors: src + rest = values of dst + new
// rest, exactly, except for rounding in the first sum. If a block is not finite, its rest becomes 0. rest may be nil:
// then dst is src, quantised. The arrays do not overlap, and need no alignment.
func Quantise(dst, src, rest []byte) { quantiseWith(best, dst, src, rest) }

// AddQuantised adds the values of src to the float32 in dst.
func AddQuantised(dst, src []byte) { addQuantisedWith(best, dst, src) }

// Dequantise sets dst, of float32, to scale × the values of src.
func Dequantise(dst, src []byte, scale float32) { dequantiseWith(best, dst, src, scale) }

// callBlocks is the most blocks in one call of assembly: see callBytes.
const callBlocks = callBytes / 2 / (4 * BlockElements)

// quantisedKernel runs k on all whole blocks of n elements, and returns their number.
func quantisedKernel(v variant, k kernel, n int, dst []byte, dstBlock int, srcs [][]byte, srcBlock int,
	scale float32) int {
	if v == portable {
		return 0
	}
	blocks := n / BlockElements
	var part [2][]byte
	for at := 0; at < blocks; at += callBlocks {
		part[0] = srcs[0][at*srcBlock:]
		if len(srcs) > 1 {
			part[1] = srcs[1][at*srcBlock:]
		}
		blockRange(k, dst[at*dstBlock:], part[:len(srcs)], scale, min(callBlocks, blocks-at))
	}
	return blocks
}

func quantiseWith(v variant, dst, src, rest []byte) {
	n := elements(tensor.Float32, src)
	checkQuantised(n, dst)
	srcs := [2][]byte{src, rest}
	sources := srcs[:1]
	if rest != nil {
		rest = rest[:len(src)]
		sources = srcs[:]
	}
	done := quantisedKernel(v, quantise, n, dst, blockBytes, sources, 4*BlockElements, 0)
	src, dst = src[4*BlockElements*done:], dst[blockBytes*done:]
	var own [4 * BlockElements]byte // errors that nobody keeps
	for len(src) > 0 {
		m := min(len(src), 4*BlockElements)
		errors := own[:m]
		clear(errors)
		if rest != nil {
			at := 4*n - len(src)
			errors = rest[at : at+m]
		}
		quantiseBlock(dst[:1+m/4], src[:m], errors)
		src, dst = src[m:], dst[1+m/4:]
	}
}

// quantiseBlock is Quantise of one block in plain Go.
func quantiseBlock(dst, src, rest []byte) {
	var sums [BlockElements]float32
	largest := uint32(0)
	n := len(src) / 4
	for i := range n {
		sums[i] = floatAt(src, i) + floatAt(rest, i)
		largest = max(largest, math.Float32bits(sums[i])&^(1<<31))
	}
	if largest += almostTwo; largest >= infinite {
		dst[0] = noNumbers
		clear(dst[1:])
		clear(rest)
		return
	}
	e := max(int(largest>>23)-scaleBelow, 1)
	dst[0] = byte(e)
	scale, inverse := math.Float32frombits(uint32(e)<<23), math.Float32frombits(uint32(254-e)<<23)
	for i, x := range sums[:n] {
		whole := float32(x*inverse) + toInt
		q := int8(math.Float32bits(whole))
		dst[1+i] = byte(q)
		putFloat(rest, i, x-float32(q)*scale)
	}
}

func addQuantisedWith(v variant, dst, src []byte) {
	n := elements(tensor.Float32, dst)
	checkQuantised(n, src)
	srcs := [1][]byte{src}
	done := quantisedKernel(v, addQuantised, n, dst, 4*BlockElements, srcs[:], blockBytes, 1)
	dst, src = dst[4*BlockElements*done:], src[blockBytes*done:]
	for i, x := range values(dst, src) {
		putFloat(dst, i, floatAt(dst, i)+x)
	}
}

func dequantiseWith(v variant, dst, src []byte, scale float32) {
	n := elements(tensor.Float32, dst)
	checkQuantised(n, src)
	srcs := [1][]byte{src}
	done := quantisedKernel(v, dequantise, n, dst, 4*BlockElements, srcs[:], blockBytes, scale)
	dst, src = dst[4*BlockElements*done:], src[blockBytes*done:]
	for i, x := range values(dst, src) {
		putFloat(dst, i, x*scale)
	}
}

// values ranges over the values of src, as many as dst has elements.
func values(dst, src []byte) func(yield func(int, float32) bool) {
	return func(yield func(int, float32) bool) {
		for i := range len(dst) / 4 {
			block := src[i/BlockElements*blockBytes:]
			scale := math.Float32frombits(uint32(block[0]) << 23)
			if !yield(i, float32(float32(int8(block[1+i%BlockElements]))*scale)) {
				return
			}
		}
	}
}

func checkQuantised(n int, quantised []byte) {
	if len(quantised) != Quantised(n) {
		panic("reduce: quantised elements of another length")
	}
}

func floatAt(b []byte, i int) float32 {
	return math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
}

func putFloat(b []byte, i int, x float32) {
	binary.NativeEndian.PutUint32(b[4*i:], math.Float32bits(x))
}

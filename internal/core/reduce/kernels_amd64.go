package reduce

import (
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// best is the fastest variant that the processor has.
var best = func() variant {
	v := portable
	for next := range numVariants {
		if available(next) {
			v = next
		}
	}
	return v
}()

// available reports whether the processor and the operating system support v.
func available(v variant) bool {
	switch v {
	case portable:
		return true
	case avx2:
		return cpu.X86.HasAVX2 && cpu.X86.HasF16C && cpu.X86.HasFMA
	case avx512:
		return available(avx2) && cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW &&
			cpu.X86.HasAVX512VL
	}
	return false
}

// looksUp reports whether v, which is available, has the kernel lookUp8.
func looksUp(v variant) bool { return v == avx512 && cpu.X86.HasAVX512VBMI }

// averages reports whether v, which is available, has the kernel k, which is in means.
func averages(v variant, k kernel) bool { return v == avx512 || k != meanInt64 }

// A job has the arguments of the assembly. The patterns fill vectors, so each holds one float64 or two equal float32.
type job struct {
	dst    *byte
	srcs   *[]byte // the first of the slice headers
	nsrc   int
	off    int // the range of bytes to work on
	end    int
	scaled uint64 // not 0: multiply by scale
	scale  uint64
	flip   uint64 // the sign bits in a maximum of floats, otherwise 0
	canon  uint64 // floats: the NaN of the package; uint8 minimum and maximum: the largest result
	kernel uint64 // index into the table of kernels
	table  *[256]byte
}

// runKernelRange runs k of variant v on the bytes from off to end, which are whole elements. It does not scale
// integers, whatever scale is.
func runKernelRange(v variant, k kernel, dt tensor.DType, op tensor.ReduceOp, dst []byte, srcs [][]byte, scale float64,
	off, end int) {
	if v == avx512 {
		if head := unaligned(dst[off:], dt.Size()); head > 0 && end-off >= alignBytes {
			runKernelRange(avx2, k, dt, op, dst, srcs, scale, off, off+head)
			off += head
		}
	}
	j := job{
		dst: unsafe.SliceData(dst), srcs: unsafe.SliceData(srcs), nsrc: len(srcs),
		off: off, end: end, kernel: uint64(k),
	}
	if v == avx512 && k < numWide {
		j.kernel += uint64(numKernels)
	}
	switch dt {
	case tensor.Float64:
		j.scale = math.Float64bits(scale)
		j.flip = 1 << 63
		j.canon = 0x7ff8_0000_0000_0000
	case tensor.Uint8:
		j.canon = math.MaxUint64
	case tensor.Bool:
		j.canon = 0x0101_0101_0101_0101
	default:
		j.scale = uint64(math.Float32bits(float32(scale))) * 0x1_0000_0001
		j.flip = 0x8000_0000_8000_0000
		j.canon = 0x7fc0_0000_7fc0_0000
	}
	if scale != 1 {
		j.scaled = 1
	}
	if op != tensor.Max {
		j.flip = 0
	}
	run(&j)
}

// alignBytes is the least length for which aligning the start of dst to a whole line pays.
const alignBytes = 4 << 10

// unaligned is the number of bytes of dst, whose elements have size bytes, before its first whole line. It is 0 if no
// line of dst begins with an element.
func unaligned(dst []byte, size int) int {
	if n := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) & 63); n%size == 0 {
		return n
	}
	return 0
}

// runElements runs k of variant v, a kernel whose ranges count elements. Their number is a multiple of wideElements.
func runElements(v variant, k kernel, j *job, from, to int) {
	j.off, j.end, j.kernel = from, to, uint64(k)
	if v == avx512 {
		j.kernel += uint64(numKernels)
	}
	run(j)
}

// castRange converts the elements from from to to.
func castRange(v variant, k kernel, dst []byte, srcs [][]byte, from, to int) {
	j := job{
		dst: unsafe.SliceData(dst), srcs: unsafe.SliceData(srcs), nsrc: len(srcs),
		canon: 0x7fc0_0000_7fc0_0000,
	}
	runElements(v, k, &j, from, to)
}

// addRange adds the elements from from to to of the two sources. The first one has elements of type wire, the second of
// type dt.
func addRange(v variant, dt, wire tensor.DType, dst []byte, srcs [][]byte, scale float64, from, to int) {
	j := job{
		dst: unsafe.SliceData(dst), srcs: unsafe.SliceData(srcs), nsrc: len(srcs),
		scale: uint64(math.Float32bits(float32(scale))) * 0x1_0000_0001,
		canon: 0x7fc0_0000_7fc0_0000,
	}
	if dt == tensor.Float64 {
		j.scale, j.canon = math.Float64bits(scale), 0x7ff8_0000_0000_0000
	}
	if scale != 1 {
		j.scaled = 1
	}
	runElements(v, additions[dt][wire], &j, from, to)
}

// scaleRange multiplies the integers from from to to by factor, which is finite;
// low and high are the limits of their type.
func scaleRange(v variant, k kernel, dst []byte, srcs [][]byte, factor, low, high float64, from, to int) {
	j := job{
		dst: unsafe.SliceData(dst), srcs: unsafe.SliceData(srcs), nsrc: len(srcs),
		scale: math.Float64bits(factor), flip: math.Float64bits(low), canon: math.Float64bits(high),
	}
	runElements(v, k, &j, from, to)
}

// meanRange multiplies the sums of the integers from from to to by factor.
func meanRange(v variant, k kernel, dst []byte, srcs [][]byte, factor float64, from, to int) {
	j := job{
		dst: unsafe.SliceData(dst), srcs: unsafe.SliceData(srcs), nsrc: len(srcs),
		scale: math.Float64bits(factor),
	}
	runElements(v, k, &j, from, to)
}

// halveRange divides the sums of the 16-bit integers from from to to by 2 to the power of
// bits, at most 15.
func halveRange(k kernel, dst []byte, srcs [][]byte, bits, from, to int) {
	run(&job{
		dst: unsafe.SliceData(dst), srcs: unsafe.SliceData(srcs), nsrc: len(srcs), off: from, end: to,
		kernel: uint64(k),
		flip:   uint64(bits), canon: (1<<bits - 1) * 0x0001_0001_0001_0001,
	})
}

// lookUpRange sums the bytes of the sources in the range [from, to), looks each sum up in the table, and writes the
// entry.
func lookUpRange(v variant, dst []byte, srcs [][]byte, table *[256]byte, from, to int) {
	j := job{dst: unsafe.SliceData(dst), srcs: unsafe.SliceData(srcs), nsrc: len(srcs), table: table}
	runElements(v, lookUp8, &j, from, to)
}

// blockRange runs k, a kernel for quantised blocks, on the first blocks. There is at least one.
func blockRange(k kernel, dst []byte, srcs [][]byte, scale float32, blocks int) {
	run(&job{
		dst: unsafe.SliceData(dst), srcs: unsafe.SliceData(srcs), nsrc: len(srcs), end: blocks, kernel: uint64(k),
		scale: uint64(math.Float32bits(scale)) * 0x1_0000_0001,
	})
}

// dotRange adds the products of the elements from from to to to d.
func dotRange(v variant, k kernel, d *dots, srcs [][]byte, from, to int) {
	j := job{dst: (*byte)(unsafe.Pointer(d)), srcs: unsafe.SliceData(srcs), nsrc: len(srcs)}
	runElements(v, k, &j, from, to)
}

// blendRange blends the elements from from to to in the first source.
func blendRange(v variant, k kernel, dt tensor.DType, srcs [][]byte, cx, cy float64, from, to int) {
	j := job{
		dst: unsafe.SliceData(srcs[0]), srcs: unsafe.SliceData(srcs), nsrc: len(srcs),
		scale: math.Float64bits(cx), flip: math.Float64bits(cy), canon: 0x7fc0_0000_7fc0_0000,
	}
	if dt == tensor.Float64 {
		j.canon = 0x7ff8_0000_0000_0000
	}
	runElements(v, k, &j, from, to)
}

// streamRange copies the bytes from from to to past the caches: whole lines of dst.
func streamRange(_ variant, dst []byte, srcs [][]byte, from, to int) {
	run(&job{
		dst: unsafe.SliceData(dst), srcs: unsafe.SliceData(srcs), nsrc: len(srcs),
		off: from, end: to, kernel: uint64(streamLines),
	})
}

// run calls a kernel, in the default floating-point mode.
//
//go:noescape
func run(j *job)

// setMode sets the thread's floating-point mode, the register MXCSR. Only tests call it.
func setMode(mxcsr uint32)

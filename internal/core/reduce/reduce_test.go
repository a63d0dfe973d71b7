package reduce

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

var seedFlag = flag.Uint64("seed", 0, "replay the random tests from this seed")

// source returns the random numbers of a test. A failing test prints their seed.
func source(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with -seed=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

var ops = []tensor.ReduceOp{tensor.Sum, tensor.Product, tensor.Min, tensor.Max, tensor.BitAnd, tensor.BitOr,
	tensor.BitXor}

// variants returns the variants that this processor has, portable first.
func variants() []variant {
	var vs []variant
	for v := range numVariants {
		if available(v) {
			vs = append(vs, v)
		}
	}
	return vs
}

// forAll runs f for each element type, with each operation that is defined for it.
func forAll(t *testing.T, f func(t *testing.T, dt tensor.DType, op tensor.ReduceOp)) {
	for dt := range tensor.DType(tensor.NumReducible) {
		for _, op := range ops {
			if Check(dt, op) != nil {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", dt, op), func(t *testing.T) { f(t, dt, op) })
		}
	}
}

// special holds values at which float arithmetic has special cases, by type.
var special = map[tensor.DType][]uint64{
	tensor.Float16: {0, 0x8000, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfe55, 0xfc01, 1, 0x8001, 0x03ff, 0x0400,
		0x7bff, 0xfbff, 0x3c00, 0xbc00, 0x3c01, 0x1000, 0x1001},
	tensor.BFloat16: {0, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffd5, 0xff81, 1, 0x8001, 0x007f, 0x0080,
		0x7f7f, 0xff7f, 0x3f80, 0xbf80, 0x3f81, 0x3b80, 0x3b81},
	tensor.Float32: {0, 1 << 31, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0x7f80_0001, 0xffc0_1234, 0xff80_0001, 1,
		1<<31 + 1, 0x007f_ffff, 0x0080_0000, 0x7f7f_ffff, 0xff7f_ffff, 0x3f80_0000, 0xbf80_0000, 0x3380_0000,
		0x3380_0001},
	tensor.Float64: {0, 1 << 63, 0x7ff0 << 48, 0xfff0 << 48, 0x7ff8 << 48, 0x7ff0<<48 + 1, 0xfff8<<48 + 0x1234,
		0xfff0<<48 + 1, 1, 1<<63 + 1, 0x000f_ffff_ffff_ffff, 0x0010 << 48, 0x7fef_ffff_ffff_ffff, 0xffef_ffff_ffff_ffff,
		0x3ff0 << 48, 0xbff0 << 48, 0x3ca0 << 48, 0x3ca0<<48 + 1},
}

// fill puts n elements into a new array that starts off bytes after an address divisible by 64: some special values,
// some random bits, and some numbers of similar size, which do not just overflow or vanish.
func fill(rnd *rand.Rand, dt tensor.DType, n, off int) []byte {
	b := aligned(n*dt.Size(), off)
	for i := 0; i < len(b); i += dt.Size() {
		putElement(b[i:i+dt.Size()], randomElement(rnd, dt))
	}
	return b
}

func randomElement(rnd *rand.Rand, dt tensor.DType) uint64 {
	kind := rnd.IntN(8)
	if dt == tensor.Bool {
		return uint64(max(kind-2, 0)) // some of 3 and more: also true
	}
	specials, float := special[dt]
	switch {
	case kind == 0 && float:
		return specials[rnd.IntN(len(specials))]
	case kind < 3:
		return rnd.Uint64()
	case float:
		return floatBits(dt, rnd.NormFloat64())
	}
	return uint64(rnd.IntN(11) - 5)
}

// aligned is a zeroed array that starts off bytes after an address divisible by 64.
func aligned(n, off int) []byte {
	b := make([]byte, n+off+64)
	off += -int(addressOf(b)) & 63
	return b[off : off+n : off+n]
}

func scales(dt tensor.DType) []float64 {
	if dt == tensor.Bool {
		return []float64{1}
	}
	return []float64{1, 1.0 / 3, -2.5, 1e-42, 1e300, math.Inf(1), math.NaN()}
}

func requireEqual(t *testing.T, dt tensor.DType, what string, got, want []byte, srcs [][]byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	size := dt.Size()
	for i := 0; i < len(want); i += size {
		g, w := got[i:i+size], want[i:i+size]
		if bytes.Equal(g, w) {
			continue
		}
		xs := make([]string, len(srcs))
		for k, s := range srcs {
			xs[k] = fmt.Sprintf("%#x", element(s[i:i+size]))
		}
		t.Fatalf("%s: element %d of %d is %#x, want %#x; from %v", what, i/size, len(want)/size, element(g),
			element(w), xs)
	}
}

func TestPortableAgainstReference(t *testing.T) {
	forAll(t, func(t *testing.T, dt tensor.DType, op tensor.ReduceOp) {
		rnd := source(t)
		for nsrc := 1; nsrc <= 5; nsrc++ {
			n := blockLen*rnd.IntN(2) + rnd.IntN(blockLen)
			srcs := make([][]byte, nsrc)
			for i := range srcs {
				srcs[i] = fill(rnd, dt, n, rnd.IntN(64))
			}
			for _, scale := range scales(dt) {
				dst := aligned(n*dt.Size(), rnd.IntN(64))
				reduceWith(portable, dt, op, dst, srcs, scale)
				requireEqual(t, dt, fmt.Sprintf("%d sources, scale %v", nsrc, scale), dst,
					reference(dt, op, srcs, scale), srcs)
			}
		}
	})
}

// guard is the number of bytes around each destination that a kernel must not touch.
const guard = 128

// checkVariants compares each variant with the portable one, and looks for writes
// beside dst and into sources. dst is at offset off from an address divisible by 64.
func checkVariants(t *testing.T, dt tensor.DType, op tensor.ReduceOp, srcs [][]byte, scale float64, off int) {
	t.Helper()
	n := len(srcs[0])
	want := make([]byte, n)
	reduceWith(portable, dt, op, want, srcs, scale)
	before := bytes.Join(srcs, nil)
	for _, v := range variants() {
		what := fmt.Sprintf("%v, %d sources, scale %v, dst at %d", v, len(srcs), scale, off)
		field := aligned(n+2*guard, off)
		for i := range field {
			field[i] = 0xa5
		}
		dst := field[guard : guard+n]
		reduceWith(v, dt, op, dst, srcs, scale)
		requireEqual(t, dt, what, dst, want, srcs)
		for i, x := range field {
			if (i < guard || i >= guard+n) && x != 0xa5 {
				t.Fatalf("%s: wrote at byte %d of %d", what, i-guard, n)
			}
		}
		if !bytes.Equal(bytes.Join(srcs, nil), before) {
			t.Fatalf("%s: changed a source", what)
		}
	}
}

func TestVariantsAgreeAtEachLength(t *testing.T) {
	forAll(t, func(t *testing.T, dt tensor.DType, op tensor.ReduceOp) {
		rnd := source(t)
		for n := range 131 {
			srcs := make([][]byte, 1+rnd.IntN(5))
			for i := range srcs {
				srcs[i] = fill(rnd, dt, n, rnd.IntN(64))
			}
			all := scales(dt)
			checkVariants(t, dt, op, srcs, 1, rnd.IntN(64))
			checkVariants(t, dt, op, srcs, all[rnd.IntN(len(all))], rnd.IntN(64))
		}
	})
}

func TestVariantsAgreeAtEachAlignment(t *testing.T) {
	forAll(t, func(t *testing.T, dt tensor.DType, op tensor.ReduceOp) {
		rnd := source(t)
		n := (3*256+3*64)/dt.Size() + 3 // each loop of each kernel goes round more than once
		for off := range 64 {
			srcs := [][]byte{fill(rnd, dt, n, 0), fill(rnd, dt, n, off)}
			checkVariants(t, dt, op, srcs, 1, 0)
			checkVariants(t, dt, op, srcs, 1, (off+1)&63)
		}
	})
}

// On long arrays the kernels take several calls, and scale integers in blocks.
func TestVariantsAgreeOnLongArrays(t *testing.T) {
	rnd := source(t)
	const nsrc = 16
	for _, dt := range []tensor.DType{tensor.Uint8, tensor.Int32, tensor.BFloat16, tensor.Float32} {
		n := (callBytes/nsrc + 3*scaleBytes + 5*8) / dt.Size()
		srcs := make([][]byte, nsrc)
		for i := range srcs {
			if i < 3 {
				srcs[i] = fill(rnd, dt, n, i)
			} else {
				srcs[i] = srcs[i%3] // random numbers take long
			}
		}
		for _, off := range []int{0, 4, 51} { // lines begin with dst, with another element, or (most types) with none
			checkVariants(t, dt, tensor.Sum, srcs, 1, off)
			checkVariants(t, dt, tensor.Sum, srcs, 0.7, off)
		}
	}
}

func TestDestinationMayBeASource(t *testing.T) {
	forAll(t, func(t *testing.T, dt tensor.DType, op tensor.ReduceOp) {
		rnd := source(t)
		for nsrc := 1; nsrc <= 5; nsrc++ {
			srcs := make([][]byte, nsrc)
			for i := range srcs {
				srcs[i] = fill(rnd, dt, blockLen+77, i)
			}
			for _, scale := range []float64{1, 0.7}[:min(2, len(scales(dt)))] {
				want := reference(dt, op, srcs, scale)
				for alias := range srcs {
					for _, v := range variants() {
						mine := make([][]byte, nsrc)
						copy(mine, srcs)
						mine[alias] = bytes.Clone(srcs[alias])
						reduceWith(v, dt, op, mine[alias], mine, scale)
						requireEqual(t, dt, fmt.Sprintf("%v, dst is source %d of %d, scale %v", v, alias, nsrc, scale),
							mine[alias], want, srcs)
					}
				}
			}
		}
		// Both sources and the destination are one array.
		x := fill(rnd, dt, 99, 0)
		want := reference(dt, op, [][]byte{x, x}, 1)
		for _, v := range variants() {
			mine := bytes.Clone(x)
			reduceWith(v, dt, op, mine, [][]byte{mine, mine}, 1)
			requireEqual(t, dt, v.String()+", all the same", mine, want, [][]byte{x})
		}
	})
}

// Adding -0 changes no number, so each 16-bit float must come back unchanged: the kernels' conversions are exact for
// all bits.
func TestKernelsConvertEach16BitFloat(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float16, tensor.BFloat16} {
		all, zeros := aligned(2<<16, 0), aligned(2<<16, 0)
		for i := range 1 << 16 {
			putElement(all[2*i:2*i+2], uint64(i))
			putElement(zeros[2*i:2*i+2], 0x8000)
		}
		srcs := [][]byte{all, zeros}
		want := reference(dt, tensor.Sum, srcs, 1)
		for _, v := range variants() {
			got := aligned(len(all), 0)
			reduceWith(v, dt, tensor.Sum, got, srcs, 1)
			requireEqual(t, dt, v.String(), got, want, srcs)
			for i := range 1 << 16 {
				x := uint64(i)
				if y := element(got[2*i : 2*i+2]); y != x && !isNaN16(dt, x) {
					t.Fatalf("%v %v: %#04x + -0 is %#04x", v, dt, x, y)
				}
			}
		}
	}
}

func isNaN16(dt tensor.DType, x uint64) bool {
	if dt == tensor.BFloat16 {
		return x&0x7fff > 0x7f80
	}
	return x&0x7fff > 0x7c00
}

// Each value plus half its last place is a tie, which must go to even; plus a little more or less it is none. The sum
// is exact in float32, so the test sees only the last rounding.
func TestKernelsRoundTiesToEven(t *testing.T) {
	for dt, manBits := range map[tensor.DType]int{tensor.Float16: 10, tensor.BFloat16: 7} {
		half := math.Ldexp(1, -manBits-1)
		for _, c := range []struct {
			name string
			add  float64
			up   func(x uint64) uint64
		}{
			{"less than a half", half * 127 / 128, func(uint64) uint64 { return 0 }},
			{"a half", half, func(x uint64) uint64 { return x & 1 }},
			{"more than a half", half * 129 / 128, func(uint64) uint64 { return 1 }},
		} {
			t.Run(fmt.Sprintf("%v and %s", dt, c.name), func(t *testing.T) {
				addToEach(t, dt, 1<<manBits, c.add, c.up)
			})
		}
	}
}

// addToEach adds to the n numbers from 1 to 2, which must then go up by up(x) numbers.
func addToEach(t *testing.T, dt tensor.DType, n int, add float64, up func(x uint64) uint64) {
	one := floatBits(dt, 1)
	values, added := aligned(2*n, 0), aligned(2*n, 0)
	for i := range n {
		putElement(values[2*i:2*i+2], one+uint64(i))
		putElement(added[2*i:2*i+2], floatBits(dt, add))
	}
	for _, v := range variants() {
		got := aligned(2*n, 0)
		reduceWith(v, dt, tensor.Sum, got, [][]byte{values, added}, 1)
		for i := range n {
			x := one + uint64(i)
			if y, want := element(got[2*i:2*i+2]), x+up(x); y != want {
				t.Fatalf("%v: %#04x + %g is %#04x, want %#04x", v, x, add, y, want)
			}
		}
	}
}

// The sum of three overflows a float16 on the way and comes back: it must not be rounded on the way.
func TestHalvesAreRoundedOnce(t *testing.T) {
	srcs := [][]byte{{0xff, 0x7b}, {0xff, 0x7b}, {0xff, 0xfb}} // 65504, 65504, -65504
	for _, v := range variants() {
		got := make([]byte, 2)
		reduceWith(v, tensor.Float16, tensor.Sum, got, srcs, 1)
		if !bytes.Equal(got, srcs[0]) {
			t.Errorf("%v: sum is %#04x, want %#04x", v, element(got), element(srcs[0]))
		}
		reduceWith(v, tensor.Float16, tensor.Sum, got, srcs[:2], 0.5)
		if !bytes.Equal(got, srcs[0]) {
			t.Errorf("%v: mean is %#04x, want %#04x", v, element(got), element(srcs[0]))
		}
	}
}

func TestScale(t *testing.T) {
	rnd := source(t)
	for dt := range tensor.DType(tensor.NumReducible) {
		src := fill(rnd, dt, 333, 0)
		for _, factor := range scales(dt) {
			want := reference(dt, tensor.Sum, [][]byte{src}, factor)
			dst := make([]byte, len(src))
			Scale(dt, dst, src, factor)
			requireEqual(t, dt, fmt.Sprintf("%v × %v", dt, factor), dst, want, [][]byte{src})
			copy(dst, src)
			Scale(dt, dst, dst, factor)
			requireEqual(t, dt, fmt.Sprintf("%v × %v in place", dt, factor), dst, want, [][]byte{src})
		}
	}
}

func TestScaledIntegersTruncateAndSaturate(t *testing.T) {
	for _, c := range []struct {
		dt     tensor.DType
		x      int64
		factor float64
		want   int64
	}{
		{tensor.Int8, 7, 0.5, 3}, {tensor.Int8, -7, 0.5, -3}, {tensor.Int8, 3, 1.0 / 3, 1},
		{tensor.Int8, 64, 2, 127}, {tensor.Int8, -64, -2, 127}, {tensor.Int8, -64, 2, -128},
		{tensor.Int8, -65, 2, -128},
		{tensor.Int8, 127, math.Inf(-1), -128}, {tensor.Int8, 0, math.Inf(1), 0}, {tensor.Int8, 5, math.NaN(), 0},
		{tensor.Uint8, 128, 2, 255}, {tensor.Uint8, 127, 2, 254}, {tensor.Uint8, 1, -0.5, 0}, {tensor.Uint8, 5, -1, 0},
		{tensor.Uint16, 32768, 2, 65535}, {tensor.Int16, 16384, 2, 32767}, {tensor.Int32, 1 << 30, 2, 1<<31 - 1},
		{tensor.Int64, 1 << 62, 2, math.MaxInt64}, {tensor.Int64, -1 << 62, 2, math.MinInt64},
		{tensor.Int64, math.MinInt64, -1, math.MaxInt64}, {tensor.Int64, math.MaxInt64, -1, math.MinInt64},
	} {
		b, want := make([]byte, c.dt.Size()), make([]byte, c.dt.Size())
		putElement(b, uint64(c.x))
		putElement(want, uint64(c.want))
		Scale(c.dt, b, b, c.factor)
		if !bytes.Equal(b, want) {
			t.Errorf("%v %d × %v is %#x, want %d", c.dt, c.x, c.factor, element(b), c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for dt := range tensor.DType(tensor.NumReducible) {
		for op := range tensor.ReduceOp(tensor.NumReduceOps) {
			defined := op != tensor.Average && op != tensor.Adasum && (op < tensor.BitAnd || !isFloat(dt))
			if err := Check(dt, op); (err == nil) != defined {
				t.Errorf("Check(%v, %v) = %v", dt, op, err)
			}
		}
		if err := CheckScale(dt, 1); err != nil {
			t.Errorf("CheckScale(%v, 1) = %v", dt, err)
		}
		if err := CheckScale(dt, 0.5); (err == nil) != (dt != tensor.Bool) {
			t.Errorf("CheckScale(%v, 0.5) = %v", dt, err)
		}
	}
	if Check(tensor.Float8E4M3FN, tensor.Sum) == nil || Check(tensor.Float8E5M2, tensor.Max) == nil ||
		Check(tensor.NumDTypes, tensor.Sum) == nil || Check(tensor.Float32, tensor.NumReduceOps) == nil ||
		CheckScale(tensor.NumDTypes, 1) == nil {
		t.Error("an unknown type or operation passes")
	}
}

// A kernel that read past a short source would read another tensor's memory.
func TestBrokenArgumentsPanic(t *testing.T) {
	eight := make([]byte, 8)
	for name, call := range map[string]func(){
		"no source":       func() { Reduce(tensor.Float32, tensor.Sum, eight, nil, 1) },
		"short source":    func() { Reduce(tensor.Float32, tensor.Sum, eight, [][]byte{eight, eight[:4]}, 1) },
		"partial element": func() { Reduce(tensor.Float32, tensor.Sum, eight[:6], [][]byte{eight[:6]}, 1) },
		"average":         func() { Reduce(tensor.Float32, tensor.Average, eight, [][]byte{eight}, 1) },
		"scaled bool":     func() { Reduce(tensor.Bool, tensor.Sum, eight, [][]byte{eight}, 2) },
		"unknown type":    func() { Scale(tensor.NumDTypes, eight, eight, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}

func TestNothingIsAllocated(t *testing.T) {
	a, b, dst := make([]byte, 9999*8), make([]byte, 9999*8), make([]byte, 9999*8)
	for dt := range tensor.DType(tensor.NumReducible) {
		for _, v := range variants() {
			scale := scales(dt)[len(scales(dt))/2]
			if n := testing.AllocsPerRun(10, func() {
				srcs := [...][]byte{a, b}
				reduceWith(v, dt, tensor.Sum, dst, srcs[:], scale)
				reduceWith(v, dt, tensor.Product, dst, srcs[:], 1)
			}); n != 0 {
				t.Errorf("%v %v: %v allocations", v, dt, n)
			}
		}
	}
	if n := testing.AllocsPerRun(10, func() { Scale(tensor.Int32, dst, a, 0.5) }); n != 0 {
		t.Errorf("Scale: %v allocations", n)
	}
}

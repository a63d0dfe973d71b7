package tensor

import (
	"math"
	"testing"
)

// float16Value is the textbook value of a finite or infinite binary16, by float64 arithmetic; ok is false for a NaN.
func float16Value(h uint16) (float64, bool) {
	return value(h, 5, 10)
}

func bfloat16Value(h uint16) (float64, bool) {
	return value(h, 8, 7)
}

func value(h uint16, expBits, manBits int) (float64, bool) {
	man := float64(h & (1<<manBits - 1))
	exp := int(h>>manBits) & (1<<expBits - 1)
	bias := 1<<(expBits-1) - 1
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	switch {
	case exp == 1<<expBits-1 && man != 0:
		return 0, false
	case exp == 1<<expBits-1:
		return math.Inf(int(sign)), true
	case exp == 0:
		return math.Copysign(math.Ldexp(man, 1-bias-manBits), sign), true
	}
	return sign * math.Ldexp(man+math.Ldexp(1, manBits), exp-bias-manBits), true
}

var formats = []struct {
	name   string
	value  func(uint16) (float64, bool)
	widen  func(uint16) float32
	narrow func(float32) uint16
	inf    uint16
	quiet  uint16
}{
	{"float16", float16Value, Float16ToFloat32, Float32ToFloat16, 0x7c00, 0x0200},
	{"bfloat16", bfloat16Value, BFloat16ToFloat32, Float32ToBFloat16, 0x7f80, 0x0040},
}

func TestWideningIsExactAndNarrowingUndoesIt(t *testing.T) {
	for _, f := range formats {
		for i := range 1 << 16 {
			h := uint16(i)
			got := f.widen(h)
			want, number := f.value(h)
			if number {
				if math.Float64bits(float64(got)) != math.Float64bits(want) {
					t.Fatalf("%s %#04x widens to %g, want %g", f.name, h, got, want)
				}
				if back := f.narrow(got); back != h {
					t.Fatalf("%s %#04x comes back as %#04x", f.name, h, back)
				}
				continue
			}
			if got == got {
				t.Fatalf("%s %#04x: the NaN became %g", f.name, h, got)
			}
			if back := f.narrow(got); back != h|f.quiet {
				t.Fatalf("%s NaN %#04x comes back as %#04x, want it quiet", f.name, h, back)
			}
		}
	}
}

// Between two neighbours lie a tie and the float32 values next to it.
func TestNarrowingRoundsToNearestEven(t *testing.T) {
	for _, f := range formats {
		for h := range f.inf {
			lo, _ := f.value(h)
			hi, _ := f.value(h + 1)
			if math.IsInf(hi, 0) {
				below, _ := f.value(h - 1)
				hi = lo + (lo - below) // the next value, if the exponent had room
			}
			tie := float32(lo + (hi-lo)/2)
			even := h + h&1
			for _, c := range []struct {
				in   float32
				want uint16
			}{
				{math.Nextafter32(tie, 0), h},
				{tie, even},
				{math.Nextafter32(tie, math.MaxFloat32), h + 1},
			} {
				if got := f.narrow(c.in); got != c.want {
					t.Fatalf("%s: %g (between %#04x and the next) narrows to %#04x, want %#04x", f.name, c.in, h,
						got, c.want)
				}
				if got := f.narrow(-c.in); got != c.want|0x8000 {
					t.Fatalf("%s: %g narrows to %#04x, want %#04x", f.name, -c.in, got, c.want|0x8000)
				}
			}
		}
	}
}

func TestNarrowingAtTheEnds(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, f := range formats {
		for _, c := range []struct {
			in   float32
			want uint16
		}{
			{inf, f.inf}, {-inf, f.inf | 0x8000},
			{math.MaxFloat32, f.inf}, {-math.MaxFloat32, f.inf | 0x8000},
			{0, 0}, {math.Float32frombits(1 << 31), 0x8000},
			{math.SmallestNonzeroFloat32, 0},
			// NaNs whose payload lies wholly in the bits that narrowing drops.
			{math.Float32frombits(0x7f80_0001), f.inf | f.quiet},
			{math.Float32frombits(0xff80_0001), f.inf | f.quiet | 0x8000},
		} {
			if got := f.narrow(c.in); got != c.want {
				t.Errorf("%s: %g (%#08x) narrows to %#04x, want %#04x", f.name, c.in, math.Float32bits(c.in),
					got, c.want)
			}
		}
	}
}

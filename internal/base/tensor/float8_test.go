package tensor

import (
	"math"
	"testing"
)

func TestFloat8(t *testing.T) {
	for _, c := range []struct {
		dt   DType
		bits uint8
		want float32
	}{
		{Float8E4M3FN, 0x00, 0}, {Float8E4M3FN, 0x01, 0x1p-9}, {Float8E4M3FN, 0x07, 7 * 0x1p-9},
		{Float8E4M3FN, 0x08, 0x1p-6},
		{Float8E4M3FN, 0x38, 1}, {Float8E4M3FN, 0x3c, 1.5}, {Float8E4M3FN, 0xb8, -1}, {Float8E4M3FN, 0x7e, 448},
		{Float8E5M2, 0x00, 0}, {Float8E5M2, 0x01, 0x1p-16}, {Float8E5M2, 0x04, 0x1p-14}, {Float8E5M2, 0x3c, 1},
		{Float8E5M2, 0x3e, 1.5}, {Float8E5M2, 0xbc, -1}, {Float8E5M2, 0x7b, 57344},
		{Float8E5M2, 0x7c, float32(math.Inf(1))}, {Float8E5M2, 0xfc, float32(math.Inf(-1))},
	} {
		if got := Float8ToFloat32(c.dt, c.bits); got != c.want {
			t.Errorf("%v %#02x is %v, not %v", c.dt, c.bits, got, c.want)
		}
		if got, exact := Float8Of(c.dt, c.want); got != c.bits || !exact {
			t.Errorf("%v of %v is %#02x, %v; not %#02x", c.dt, c.want, got, exact, c.bits)
		}
	}
	negative := math.Float32frombits(1 << 31)
	for _, dt := range []DType{Float8E4M3FN, Float8E5M2} {
		if got, exact := Float8Of(dt, negative); got != 0x80 || !exact {
			t.Errorf("%v of -0 is %#02x, %v", dt, got, exact)
		}
		for _, f := range []float32{1.01, 1e6, 0x1p-20} {
			if got, exact := Float8Of(dt, f); exact {
				t.Errorf("%v has %v, as %#02x", dt, f, got)
			}
		}
		if !dt.IsFloat8() || Float16.IsFloat8() || Uint8.IsFloat8() || DType(NumDTypes).IsFloat8() {
			t.Errorf("%v: IsFloat8", dt)
		}
	}
	for _, nan := range []struct {
		dt   DType
		bits uint8
	}{{Float8E4M3FN, 0x7f}, {Float8E4M3FN, 0xff}, {Float8E5M2, 0x7d}, {Float8E5M2, 0xff}} {
		if got := Float8ToFloat32(nan.dt, nan.bits); got == got {
			t.Errorf("%v %#02x is %v, no NaN", nan.dt, nan.bits, got)
		}
	}
}

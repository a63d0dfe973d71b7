package hvd

import (
	"math"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

func TestDType(t *testing.T) {
	type named float32
	type flag bool
	for i, c := range []struct{ got, want tensor.DType }{
		{dtype[uint8](), tensor.Uint8}, {dtype[int8](), tensor.Int8}, {dtype[uint16](), tensor.Uint16},
		{dtype[int16](), tensor.Int16},
		{dtype[int32](), tensor.Int32}, {dtype[int64](), tensor.Int64}, {dtype[float32](), tensor.Float32},
		{dtype[float64](), tensor.Float64},
		{dtype[bool](), tensor.Bool}, {dtype[Float16](), tensor.Float16}, {dtype[BFloat16](), tensor.BFloat16},
		{dtype[named](), tensor.Float32}, {dtype[flag](), tensor.Bool}, {dtype[ReduceOp](), tensor.Uint8},
	} {
		if c.got != c.want {
			t.Errorf("%d: %v, not %v", i, c.got, c.want)
		}
	}
	var sink tensor.DType
	if n := testing.AllocsPerRun(100, func() { sink = dtype[Float16]() + dtype[named]() + dtype[int64]() }); n != 0 {
		t.Errorf("dtype allocates %v times", n)
	}
	_ = sink
}

func TestHalves(t *testing.T) {
	if h := NewFloat16(-1.5); h != 0xbe00 || h.Float32() != -1.5 || h.String() != "-1.5" {
		t.Errorf("%#x %v", uint16(h), h)
	}
	if h := NewFloat16(1e6); !math.IsInf(float64(h.Float32()), 1) || h.String() != "+Inf" {
		t.Error(h)
	}
	if b := NewBFloat16(1e6); b.Float32() != 999424 || NewBFloat16(-2) != 0xc000 || b.String() != "999424" {
		t.Error(b)
	}
}

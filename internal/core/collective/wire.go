package collective

import (
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// Compression on the wire. Partial sums stay in memory in the elements' own type. Members round data to the wire's type
// when they send it, and add it to a partial sum, or widen it, when it arrives. The owner of a part of the result
// rounds it once, and also uses the rounded values itself. Rounding these again is exact, so all members get the same
// bits, however often the values are passed on. This holds for 16-bit floats. allreduceQuantised handles the other
// forms.

// compressed reports that elements change their form on the wire.
func (r *reduction) compressed() bool { return r.wire != tensor.WireAsIs }

// sent is the number of bytes on the wire for n bytes of elements.
func (r *reduction) sent(n int) int {
	if !r.compressed() {
		return n
	}
	if r.wire == tensor.WireInt8 {
		return reduce.Quantised(n / r.dt.Size())
	}
	return n / r.dt.Size() * r.wire.DType(r.dt).Size()
}

// narrow converts src to its form on the wire.
func (r *reduction) narrow(wire, src []byte) { reduce.Cast(r.wire.DType(r.dt), r.dt, wire, src) }

// widen fills dst with the data that has arrived as wire.
func (r *reduction) widen(dst, wire []byte) { reduce.Cast(r.dt, r.wire.DType(r.dt), dst, wire) }

// add makes dst = scale × (src + the data that has arrived as wire).
func (r *reduction) add(dst, src, wire []byte, scale float64) {
	reduce.AddCast(r.dt, r.wire.DType(r.dt), dst, src, wire, scale)
}

// round rounds data to values that the wire can hold, using temp.
func (r *reduction) round(data, temp []byte) {
	temp = temp[:r.sent(len(data))]
	r.narrow(temp, data)
	r.widen(data, temp)
}

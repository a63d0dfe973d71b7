package collective

import (
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/codec"
)

// Compression on the wire. Partial sums stay in memory in the elements' own type. Members encode data when they send
// it, and add it to a partial sum, or decode it, when it arrives. The owner of a part of the result rounds it once, and
// also uses the rounded values itself. Rounding these again is exact, so all members get the same bits, however often
// the values are passed on. Codecs that keep errors go by allreduceQuantised.

// compressed reports that elements change their form on the wire.
func (r *reduction) compressed() bool { return r.wire != tensor.WireAsIs }

// codec has the form in which elements travel; nil unless they are compressed.
func (r *reduction) codec() codec.Codec { return codec.Of(r.wire) }

// sent is the number of bytes on the wire for n bytes of elements.
func (r *reduction) sent(n int) int {
	if !r.compressed() {
		return n
	}
	return r.codec().Bytes(r.dt, n/r.dt.Size())
}

// narrow converts src to its form on the wire.
func (r *reduction) narrow(wire, src []byte) { r.codec().Encode(r.dt, wire, src, nil) }

// widen fills dst with the data that has arrived as wire.
func (r *reduction) widen(dst, wire []byte) { r.codec().Decode(r.dt, dst, wire, 1) }

// add makes dst = scale × (src + the data that has arrived as wire).
func (r *reduction) add(dst, src, wire []byte, scale float64) {
	r.codec().Add(r.dt, dst, src, wire, scale)
}

// round rounds data to values that the wire can hold, using temp.
func (r *reduction) round(data, temp []byte) {
	temp = temp[:r.sent(len(data))]
	r.narrow(temp, data)
	r.widen(data, temp)
}

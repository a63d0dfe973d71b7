// Package codec turns the elements of a reduction into the forms in which they travel between hosts, and back.
//
// A form has a row in tensor's table (its name, the types that it takes, whether it keeps errors) and a Codec here, in
// a file of its own, which registers itself. Algorithms know no form by name: they ask whether it keeps errors. Without
// that, elements are rounded at each hop, which must then change nothing the second time. With it, each contribution is
// rounded once, and the sum once; collective.AllreduceAs chooses an algorithm that does so.
package codec

import "github.com/gorovod/gorovod/internal/base/tensor"

// Codec is one form. dt is one of the form's types. Elements are in the order of memory, and need no alignment. Arrays
// do not overlap unless said otherwise. A Codec has no state: any number of goroutines may use it.
type Codec interface {
	// Block is how many elements are encoded together: data is cut at its multiples only.
	Block() int
	// Bytes is the length of n encoded elements.
	Bytes(dt tensor.DType, n int) int
	// Encode sets dst, of Bytes, to src + rest, and rest to the rounding errors, exactly: src + rest = values of dst +
	// new rest, except for rounding in the first sum. rest is nil if errors are not kept. Encoding decoded values, by
	// whole blocks, gives the same bytes.
	Encode(dt tensor.DType, dst, src, rest []byte)
	// Decode sets dst to scale × the values of src.
	Decode(dt tensor.DType, dst, src []byte, scale float64)
	// Add sets dst to scale × (own + the values of src). own may be dst.
	Add(dt tensor.DType, dst, own, src []byte, scale float64)
}

var codecs [tensor.NumWires]Codec

// register is called by the init function of a codec's file.
func register(w tensor.Wire, c Codec) { codecs[w] = c }

// Of returns the codec of a form, nil for tensor.WireAsIs.
func Of(w tensor.Wire) Codec { return codecs[w] }

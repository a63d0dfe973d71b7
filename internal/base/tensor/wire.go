package tensor

import (
	"fmt"
	"strconv"
)

// Wire is the form in which the elements of a reduction travel between hosts. Inside a host they keep their form. C
// callers and the wire see the numbers.
//
//	fp16, bf16  each number as a 16-bit float; of float32 and float64
//	int8        blocks of 32 numbers of 8 bits with a common scale; of float32. The rounding errors are kept under the
//	            tensor's name, and added to the tensor's next contribution (Keeps). A short tensor travels as it is
type Wire uint8

// The forms.
const (
	WireAsIs     Wire = 0
	WireFloat16  Wire = 1
	WireBFloat16 Wire = 2
	WireInt8     Wire = 3

	NumWires = 4
)

var wires = [NumWires]struct {
	name string
	dt   DType
}{{"none", 0}, {"fp16", Float16}, {"bf16", BFloat16}, {"int8", Int8}}

// Valid reports whether w is one of the constants above.
func (w Wire) Valid() bool { return w < NumWires }

// String is the form's name: "none", "fp16", "bf16" or "int8".
func (w Wire) String() string {
	if !w.Valid() {
		return "wire(" + strconv.Itoa(int(w)) + ")"
	}
	return wires[w].name
}

// ParseWire parses what String returns.
func ParseWire(s string) (Wire, error) {
	for w := range Wire(NumWires) {
		if s == wires[w].name {
			return w, nil
		}
	}
	return WireAsIs, fmt.Errorf("none, fp16, bf16 or int8 is needed")
}

// For returns w if w is a form for elements of type dt and op tolerates the rounding: for sums and averages of float32,
// and of float64 except with int8. Otherwise it returns WireAsIs.
func (w Wire) For(dt DType, op ReduceOp) Wire {
	if (dt == Float32 || dt == Float64 && w != WireInt8) && (op == Sum || op == Average) {
		return w
	}
	return WireAsIs
}

// Keeps reports whether the form keeps state of a tensor from one allreduce to the next.
func (w Wire) Keeps() bool { return w == WireInt8 }

// DType returns the type that elements of type dt have on the wire. WireInt8 has scales in addition.
func (w Wire) DType(dt DType) DType {
	if w == WireAsIs {
		return dt
	}
	return wires[w].dt
}

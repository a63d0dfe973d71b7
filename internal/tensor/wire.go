package tensor

import (
	"fmt"
	"strconv"
)

// Wire is the form in which the elements of a reduction travel between hosts. Inside a host they never change their
// form. C callers and the wire see the numbers.
type Wire uint8

// The forms.
const (
	WireAsIs     Wire = 0
	WireFloat16  Wire = 1
	WireBFloat16 Wire = 2

	NumWires = 3
)

var wires = [NumWires]struct {
	name string
	dt   DType
}{{"none", 0}, {"fp16", Float16}, {"bf16", BFloat16}}

// Valid reports whether w is one of the constants above.
func (w Wire) Valid() bool { return w < NumWires }

// String is the form's name: "none", "fp16" or "bf16".
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
	return WireAsIs, fmt.Errorf("none, fp16 or bf16 is needed")
}

// For returns w if it makes elements of type dt shorter and op tolerates the rounding: sums and averages of float32
// and float64. Otherwise it returns WireAsIs.
func (w Wire) For(dt DType, op ReduceOp) Wire {
	if (dt == Float32 || dt == Float64) && (op == Sum || op == Average) {
		return w
	}
	return WireAsIs
}

// DType returns the type that elements of type dt have on the wire.
func (w Wire) DType(dt DType) DType {
	if w == WireAsIs {
		return dt
	}
	return wires[w].dt
}

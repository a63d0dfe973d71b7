package tensor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Wire is the form in which the elements of a reduction travel between hosts. Inside a host they keep their form. C
// callers and the wire see the numbers. Package codec has what turns elements into each form, and back.
type Wire uint8

// The forms. Those that keep the rounding errors of a tensor (Keeps) do so under its name, and add them to its next
// contribution; a short tensor travels as it is then.
const (
	WireAsIs     Wire = 0
	WireFloat16  Wire = 1 // each number as a 16-bit float
	WireBFloat16 Wire = 2
	WireInt8     Wire = 3 // blocks of integers of 8 bits with a common scale
	WireFloat8   Wire = 4 // blocks of floats of 8 bits with a common scale

	NumWires = 5
)

// form describes a Wire.
type form struct {
	name  string
	types []DType // of which it compresses sums and averages
	keeps bool
}

var forms = [NumWires]form{
	WireAsIs:     {name: "none"},
	WireFloat16:  {name: "fp16", types: []DType{Float32, Float64}},
	WireBFloat16: {name: "bf16", types: []DType{Float32, Float64}},
	WireInt8:     {name: "int8", types: []DType{Float32}, keeps: true},
	WireFloat8:   {name: "fp8", types: []DType{Float32}, keeps: true},
}

// Valid reports whether w is one of the constants above.
func (w Wire) Valid() bool { return w < NumWires }

// String is the form's name, such as "none" or "fp16".
func (w Wire) String() string {
	if !w.Valid() {
		return "wire(" + strconv.Itoa(int(w)) + ")"
	}
	return forms[w].name
}

// ParseWire parses what String returns.
func ParseWire(s string) (Wire, error) {
	var names []string
	for w := range Wire(NumWires) {
		if s == forms[w].name {
			return w, nil
		}
		names = append(names, forms[w].name)
	}
	last := len(names) - 1
	return WireAsIs, fmt.Errorf("%s or %s is needed", strings.Join(names[:last], ", "), names[last])
}

// Types are the types of elements that have this form in sums and averages.
func (w Wire) Types() []DType { return forms[w].types }

// For returns w if sums and averages of the type have this form, and op is one of these. Otherwise it returns WireAsIs.
func (w Wire) For(dt DType, op ReduceOp) Wire {
	if (op == Sum || op == Average) && slices.Contains(forms[w].types, dt) {
		return w
	}
	return WireAsIs
}

// Keeps reports whether the form keeps state of a tensor from one allreduce to the next: its rounding errors.
func (w Wire) Keeps() bool { return forms[w].keeps }

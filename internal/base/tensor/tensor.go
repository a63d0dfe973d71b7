// Package tensor defines element types, shapes and reduce operations. It holds no data and knows no collective. Every
// other package may import it; it imports nothing of this module.
package tensor

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// DType is the type of a tensor's elements. C callers and the wire see the numbers, which are Horovod's; those from
// BFloat16 on are additions.
type DType uint8

// The element types.
const (
	Uint8    DType = 0
	Int8     DType = 1
	Uint16   DType = 2
	Int16    DType = 3
	Int32    DType = 4
	Int64    DType = 5
	Float16  DType = 6
	Float32  DType = 7
	Float64  DType = 8
	Bool     DType = 9
	BFloat16 DType = 10
	// Floats of 8 bits, which have PyTorch's names.
	Float8E4M3FN DType = 11
	Float8E5M2   DType = 12

	NumDTypes = 13
	// NumReducible is the number of types, the first ones, that host memory can combine. Elements of other types it can
	// only move.
	NumReducible = 11
)

var dtypes = [NumDTypes]struct {
	name string
	size int
}{
	{"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"int32", 4}, {"int64", 8},
	{"float16", 2}, {"float32", 4}, {"float64", 8}, {"bool", 1}, {"bfloat16", 2},
	{"float8_e4m3fn", 1}, {"float8_e5m2", 1},
}

// Valid reports whether d is one of the constants above.
func (d DType) Valid() bool { return d < NumDTypes }

// IsFloat8 reports whether elements are floats of 8 bits, which only some devices can combine.
func (d DType) IsFloat8() bool { return d >= NumReducible && d.Valid() }

// Size returns the bytes of one element; 0 for an invalid type.
func (d DType) Size() int {
	if !d.Valid() {
		return 0
	}
	return dtypes[d].size
}

// String is the name that Horovod's messages use, such as "float32".
func (d DType) String() string {
	if !d.Valid() {
		return "dtype(" + strconv.Itoa(int(d)) + ")"
	}
	return dtypes[d].name
}

// ReduceOp says how the members' elements are combined. C callers and the wire see the numbers, which are Horovod's.
// The operations on bits are additions.
type ReduceOp uint8

// The reduce operations.
const (
	Average ReduceOp = 0
	Sum     ReduceOp = 1
	Adasum  ReduceOp = 2
	Min     ReduceOp = 3
	Max     ReduceOp = 4
	Product ReduceOp = 5
	BitAnd  ReduceOp = 6
	BitOr   ReduceOp = 7
	BitXor  ReduceOp = 8

	NumReduceOps = 9
)

var reduceOps = [NumReduceOps]string{"average", "sum", "adasum", "min", "max", "product", "band", "bor", "bxor"}

// Valid reports whether op is one of the constants above.
func (op ReduceOp) Valid() bool { return op < NumReduceOps }

// String is the operation's name in lower case.
func (op ReduceOp) String() string {
	if !op.Valid() {
		return "reduce op(" + strconv.Itoa(int(op)) + ")"
	}
	return reduceOps[op]
}

// Shape is the length of a tensor in each dimension; empty for a scalar.
type Shape []int64

// NumElements returns the product of the dimensions, 1 for a scalar. A negative dimension or a product beyond int64 is
// an error.
func (s Shape) NumElements() (int64, error) {
	n := int64(1)
	for i, d := range s {
		if d < 0 {
			return 0, fmt.Errorf("shape %v: dimension %d is negative", s, i)
		}
		if d != 0 && n > math.MaxInt64/d {
			return 0, fmt.Errorf("shape %v: too many elements", s)
		}
		n *= d
	}
	return n, nil
}

// Equal reports whether both shapes have the same dimensions.
func (s Shape) Equal(o Shape) bool {
	if len(s) != len(o) {
		return false
	}
	for i := range s {
		if s[i] != o[i] {
			return false
		}
	}
	return true
}

// String returns Horovod's form, "[2, 3]".
func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range s {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.FormatInt(d, 10))
	}
	b.WriteByte(']')
	return b.String()
}

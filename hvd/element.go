package hvd

import (
	"fmt"
	"reflect"
	"strconv"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Element is the type of a tensor's elements: one of these types of Go, a type
// defined from one, Float16, or BFloat16.
//
// The sum of bools is "or", their product "and"; they have no average.
type Element interface {
	~uint8 | ~int8 | ~uint16 | ~int16 | ~int32 | ~int64 | ~float32 | ~float64 | ~bool
}

// Float16 holds the bits of an IEEE 754 number of 16 bits, and is reduced as that
// number. A type that you define from Float16 is an integer.
type Float16 uint16

// NewFloat16 rounds f to the nearest Float16, ties to even. Numbers beyond the range
// become infinities.
func NewFloat16(f float32) Float16 { return Float16(tensor.Float32ToFloat16(f)) }

// Float32 is the value of h, exactly.
func (h Float16) Float32() float32 { return tensor.Float16ToFloat32(uint16(h)) }

// String is the value of h.
func (h Float16) String() string { return text(h.Float32()) }

// BFloat16 holds the upper half of a float32's bits, and is reduced as a number. A
// type that you define from BFloat16 is an integer.
type BFloat16 uint16

// NewBFloat16 rounds f to the nearest BFloat16, ties to even.
func NewBFloat16(f float32) BFloat16 { return BFloat16(tensor.Float32ToBFloat16(f)) }

// Float32 is the value of b, exactly.
func (b BFloat16) Float32() float32 { return tensor.BFloat16ToFloat32(uint16(b)) }

// String is the value of b.
func (b BFloat16) String() string { return text(b.Float32()) }

func text(f float32) string { return strconv.FormatFloat(float64(f), 'g', -1, 32) }

// dtype is the data type of a T. It does not allocate.
func dtype[T Element]() tensor.DType {
	var zero T
	switch any(zero).(type) {
	case Float16:
		return tensor.Float16
	case BFloat16:
		return tensor.BFloat16
	}
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Uint8:
		return tensor.Uint8
	case reflect.Int8:
		return tensor.Int8
	case reflect.Uint16:
		return tensor.Uint16
	case reflect.Int16:
		return tensor.Int16
	case reflect.Int32:
		return tensor.Int32
	case reflect.Int64:
		return tensor.Int64
	case reflect.Float32:
		return tensor.Float32
	case reflect.Float64:
		return tensor.Float64
	case reflect.Bool:
		return tensor.Bool
	}
	panic(fmt.Sprintf("hvd: no data type for %T", zero)) // Element admits no other
}

// view is the memory of data.
func view[T Element](data []T) []byte {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*int(unsafe.Sizeof(data[0])))
}

package nccl

import "fmt"

// UniqueID names a communicator before it is made. One member makes the name, and hands it to the others.
type UniqueID [128]byte

// DType is a type of elements: ncclDataType_t.
type DType int32

const (
	Int8 DType = iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	BFloat16   // since 2.10
	Float8E4M3 // since 2.24
	Float8E5M2 // since 2.24
)

// Size is the size of an element in bytes.
func (d DType) Size() int {
	switch d {
	case Int8, Uint8, Float8E4M3, Float8E5M2:
		return 1
	case Float16, BFloat16:
		return 2
	case Int32, Uint32, Float32:
		return 4
	}
	return 8
}

// ReduceOp is a way to reduce: ncclRedOp_t. Comm.NewScaledSum makes further ones.
type ReduceOp int32

const (
	Sum ReduceOp = iota
	Product
	Max
	Min
	Average // since 2.10
)

// Result is a code of NCCL's: ncclResult_t.
type Result int32

const (
	Success Result = iota
	UnhandledCUDAError
	SystemError
	InternalError
	InvalidArgument
	InvalidUsage
	RemoteError
	InProgress
	Timeout
)

// The first version of NCCL with each feature.
const (
	oldest      = 21400 // non-blocking communicators
	withSplit   = 21800
	withFloat8  = 22400
	withShrink  = 22700
	withSharing = 23000 // of a device by several members; 2.29.7 lacks it
	newestKnown = 2     // the one major version whose interface is known here
)

// versionCode is NCCL's own code of a version.
func versionCode(major, minor, patch int) int {
	if major == 2 && minor < 9 {
		return major*1000 + minor*100 + patch
	}
	return major*10000 + minor*100 + patch
}

// VersionText writes a version as people do: 2.18.5 for 21805. A broken library may say a negative one.
func VersionText(v int) string {
	if v < 0 {
		return fmt.Sprint(v)
	}
	if v < 10000 { // before 2.9, as 2708
		return fmt.Sprintf("%d.%d.%d", v/1000, v%1000/100, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100)
}

package main

/*
#include "shim.h"
*/
import "C"

import (
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/gorovod/gorovod/internal/joining/process"
)

// digestBytes is the number of bytes hashed at a time: the hash is in assembly, which cannot be interrupted.
const digestBytes = 1 << 20

//export goDigest
func goDigest(data unsafe.Pointer, bytes C.size_t, digest *C.uint64_t) {
	rest := unsafe.Slice((*byte)(data), int(bytes))
	h := xxh3.New()
	for len(rest) > 0 {
		n := min(len(rest), digestBytes)
		_, _ = h.Write(rest[:n]) // never fails
		rest = rest[n:]
	}
	sum := h.Sum128()
	out := unsafe.Slice(digest, 2)
	out[0], out[1] = C.uint64_t(sum.Hi), C.uint64_t(sum.Lo)
}

//export goConsistencySteps
func goConsistencySteps() C.int {
	if w := process.World(); w != nil {
		return C.int(w.Config.ConsistencySteps)
	}
	return 0
}

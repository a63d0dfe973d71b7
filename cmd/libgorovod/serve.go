package main

/*
#include "shim.h"
*/
import "C"

import (
	"slices"
	"unsafe"

	"github.com/gorovod/gorovod/internal/joining/process"
)

//export goServe
func goServe(host *C.char, key unsafe.Pointer, n C.size_t, size C.int, port *C.int, reason *C.char) C.int {
	p, err := process.Serve(C.GoString(host), slices.Clone(bytes(key, int64(n))), int(size), getenv)
	if err != nil {
		explain(reason, err.Error())
		return C.GOROVOD_INVALID_ARGUMENT
	}
	*port = C.int(p)
	return C.GOROVOD_OK
}

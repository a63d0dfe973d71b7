package main

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/process"
	"github.com/gorovod/gorovod/internal/observe/vitals"
)

//export goMetrics
func goMetrics(reason *C.char) *C.char {
	w := process.World()
	if w == nil {
		explain(reason, engine.ErrNotInitialized.Error())
		return nil
	}
	text, err := w.Figures().JSON(w.Place.Rank, w.Place.Size)
	if err != nil {
		explain(reason, err.Error())
		return nil
	}
	return C.CString(string(text))
}

//export goOfferStack
func goOfferStack(facts *C.uint64_t, file, function *C.char) C.int {
	f := unsafe.Slice((*uint64)(facts), 8)
	err := vitals.Offer(vitals.Python{Version: [2]int{int(f[0]), int(f[1])},
		Thread: uintptr(f[2]), Ident: uintptr(f[3]),
		Code: uintptr(f[4]), Str: uintptr(f[5]), Bytes: uintptr(f[6])},
		vitals.Frame{File: C.GoString(file), Func: C.GoString(function), Line: int(f[7])})
	if err != nil {
		return -1
	}
	return 0
}

//export goCountSamples
func goCountSamples(n C.int64_t) C.int {
	w := process.World()
	if w == nil {
		return -1
	}
	w.Engine.Counters().Samples.Add(int64(n))
	return 0
}

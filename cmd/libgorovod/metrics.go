package main

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/process"
)

//export goMetrics
func goMetrics(reason *C.char) *C.char {
	w := process.World()
	if w == nil {
		explain(reason, engine.ErrNotInitialized.Error())
		return nil
	}
	text, err := w.Engine.Figures().JSON(w.Place.Rank, w.Place.Size)
	if err != nil {
		explain(reason, err.Error())
		return nil
	}
	return C.CString(string(text))
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

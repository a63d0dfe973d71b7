package main

/*
#include <stdbool.h>
#include "shim.h"
*/
import "C"

import (
	"github.com/gorovod/gorovod/internal/process"
)

//export goStartTimeline
func goStartTimeline(file *C.char, markCycles C.bool, reason *C.char) C.int {
	w := process.World()
	switch {
	case w == nil:
		return -1
	case w.Config.Timeline == "":
		explain(reason, "the timeline is not enabled: set HOROVOD_TIMELINE=DYNAMIC, or to a file, before hvd.init()")
		return -2
	case w.Config.Rank != 0:
		return 1 // rank 0 writes it
	}
	if err := w.Timeline.Start(C.GoString(file), bool(markCycles)); err != nil {
		explain(reason, err.Error())
		return -3
	}
	return 1
}

//export goStopTimeline
func goStopTimeline(reason *C.char) C.int {
	w := process.World()
	if w == nil {
		return -1
	}
	if err := w.Timeline.Stop(); err != nil {
		explain(reason, err.Error())
		return -3
	}
	return 1
}

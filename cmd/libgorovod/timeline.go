package main

/*
#include <stdbool.h>
#include "shim.h"
*/
import "C"

import (
	"errors"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/process"
)

//export goStartTimeline
func goStartTimeline(file *C.char, markCycles C.bool, reason *C.char) C.int {
	return timelineStatus(process.StartTimeline(C.GoString(file), bool(markCycles)), reason)
}

//export goStopTimeline
func goStopTimeline(reason *C.char) C.int {
	err := process.StopTimeline()
	if errors.Is(err, process.ErrTimelineNotEnabled) {
		return 1 // as in Horovod: there is no timeline to stop
	}
	return timelineStatus(err, reason)
}

// timelineStatus returns Horovod's number for an outcome; -3 is an addition.
func timelineStatus(err error, reason *C.char) C.int {
	if err == nil {
		return 1
	}
	explain(reason, err.Error())
	switch {
	case errors.Is(err, engine.ErrNotInitialized):
		return -1
	case errors.Is(err, process.ErrTimelineNotEnabled):
		return -2
	}
	return -3
}

package main

/*
#include "shim.h"
*/
import "C"

import "github.com/gorovod/gorovod/internal/joining/process"

//export goFail
func goFail(reason *C.char) { process.Fail(C.GoString(reason)) }

//export goFailure
func goFailure(buf *C.char) { explain(buf, process.Failure()) }

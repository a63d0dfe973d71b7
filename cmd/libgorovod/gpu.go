package main

/*
#include <stdint.h>
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/carriers/gpu"
	"github.com/gorovod/gorovod/internal/carriers/gpu/carrier"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/process"
	"github.com/gorovod/gorovod/internal/joining/world"
	"github.com/gorovod/gorovod/internal/tools/interpreter"
)

func init() {
	process.Devices = func(w *world.World) engine.Devices {
		return carrier.New(carrier.Native{}, carrier.Options{
			Rank: w.Place.Rank, Mode: modes[w.Config.GPU], Deadline: w.Config.Timeout,
			Deterministic: w.Config.Deterministic, Async: w.Config.AsyncCompletion, Default: w.Place.LocalRank,
			Abort: w.Abort, Reclaim: reclaim, Describe: w.Describe, Log: w.Log(),
			End: func(last error) {
				if process.World() != w {
					return // the process has left that job, and may be in another one
				}
				time.AfterFunc(time.Second, func() { os.Exit(1) }) // because nobody may read the log
				w.Log().Error(last.Error())
				os.Exit(1)
			},
		})
	}
}

var modes = map[config.GPU]carrier.Mode{
	config.GPUAuto: carrier.Auto, config.GPUNCCL: carrier.NCCL, config.GPUStaged: carrier.Staged,
	config.GPUOff: carrier.Off,
}

// longestReclaim bounds how long the engine waits for the program to give memory back: a thread that has the lock of
// its interpreter may be waiting for the engine.
const longestReclaim = 5 * time.Second

// reclaim asks the program to give back memory of a device, and waits until it has done so, or for longestReclaim.
func reclaim(device int) {
	done := make(chan struct{})
	guard.Go("the release of device memory", func(error) {}, func() {
		defer close(done)
		C.shim_release_memory(C.int(device))
	})
	select {
	case <-done:
	case <-time.After(longestReclaim):
	}
}

// devices returns the devices of the current world; nil if there is no world.
func devices() *carrier.Devices {
	if w := process.World(); w != nil {
		if d, ok := w.Devices.(*carrier.Devices); ok {
			return d
		}
	}
	return nil
}

// owner returns the engine's stand-in for the device memory of an operation.
func owner(c *C.gorovod_op) collective.Owner {
	d := devices()
	if d == nil {
		return carrier.Refused{Err: engine.ErrNotInitialized}
	}
	return d.Owner(int(c.device), cuda.Stream(uintptr(c.device_stream)))
}

// onDevice makes the engine allocate the output of op on its owner's device, if the engine is to make it.
func onDevice(op *engine.Op) {
	if t, ok := op.Owner.(*carrier.Tensor); ok && op.Alloc != nil {
		op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) { return t.Alloc(n) }
		op.Free = t.Free
	}
}

// disown releases the owners of operations that were not submitted.
func disown(ops []engine.Op) {
	for i := range ops {
		if ops[i].Owner != nil {
			ops[i].Owner.Release()
		}
	}
}

//export goTakesDevice
func goTakesDevice(device C.int) C.int {
	if d := devices(); d != nil && device >= 0 && d.Takes(int(device)) {
		return 1
	}
	return 0
}

//export goAwaitOnStream
func goAwaitOnStream(handle C.int64_t, stream C.uintptr_t, reason *C.char) C.int {
	e, status := finished(handle, reason)
	if e == nil {
		return status
	}
	defer e.Release()
	if t, ok := e.Owner().(*carrier.Tensor); ok {
		if err := t.Wait(cuda.Stream(stream)); err != nil {
			explain(reason, fmt.Sprintf("%s %q: %v", e.Type().Describe().Name, e.Name(), err))
			return C.GOROVOD_UNKNOWN_ERROR
		}
	}
	return C.GOROVOD_OK
}

//export goSettle
func goSettle(timeoutMS C.int64_t, reason *C.char) C.int {
	d := devices()
	if d == nil {
		return C.GOROVOD_OK
	}
	over, err := d.Settle(time.Duration(timeoutMS) * time.Millisecond)
	if err != nil {
		explain(reason, fmt.Sprintf("the device may not have done all operations before the job failed: %v", err))
		return C.GOROVOD_UNKNOWN_ERROR
	}
	if !over {
		return C.GOROVOD_IN_PROGRESS
	}
	return C.GOROVOD_OK
}

//export goFreeOnDevice
func goFreeOnDevice(device C.int, data unsafe.Pointer) {
	if data == nil {
		return // an empty output
	}
	if c, err := (carrier.Native{}).Context(int(device)); err == nil {
		_ = c.Free(cuda.Address(uintptr(data))) // the process ends, or the device is lost
	}
}

//export goFreeOnStream
func goFreeOnStream(device C.int, data unsafe.Pointer, bytes C.size_t, stream C.uintptr_t) {
	at := cuda.Address(uintptr(data))
	if d := devices(); d == nil || !d.GiveBack(int(device), at, int(bytes), cuda.Stream(stream)) {
		goFreeOnDevice(device, data)
	}
}

// wish is how tensors of devices travel in the job that runs, or in a job that this process would start now, and how
// long such a job looks for NCCL.
func wish() (config.GPU, time.Duration, error) {
	if w := process.World(); w != nil {
		return w.Config.GPU, w.Config.Timeout, nil
	}
	c, err := config.Load(func(name string) (string, bool) {
		if name != "GOROVOD_GPU" && name != "HOROVOD_GLOO_TIMEOUT_SECONDS" {
			return "", false // other variables may be wrong, too
		}
		return getenv(name)
	})
	if err != nil {
		return "", 0, err
	}
	return c.GPU, c.Timeout, nil
}

//export goNCCLBuilt
func goNCCLBuilt() C.int {
	if w, limit, err := wish(); err == nil {
		return C.int(gpu.NCCLVersion(w, limit))
	}
	return 0 // no job can start
}

//export goAwaitNCCLBuilt
func goAwaitNCCLBuilt(timeoutMS C.int64_t) C.int {
	w, limit, err := wish()
	if err != nil {
		return 0
	}
	version, known := gpu.AwaitNCCLVersion(w, limit, time.Duration(timeoutMS)*time.Millisecond)
	if !known {
		return -1
	}
	return C.int(version)
}

// descriptor writes to a file of the program.
type descriptor C.int

func (d descriptor) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var more int
		if more, err = syscall.Write(int(d), p[n:]); err == nil || err == syscall.EINTR {
			n, err = n+max(0, more), nil
		}
	}
	return n, err
}

// tell writes each call into CUDA or NCCL to a descriptor, as interpreter.CallPrefix says, until stop is called.
func tell(to C.int) (stop func()) {
	cuda.Tell(func(call string) { fmt.Fprintf(descriptor(to), "%s%s\n", interpreter.CallPrefix, call) })
	return func() { cuda.Tell(nil) }
}

//export goUsableNCCL
func goUsableNCCL(calls C.int) C.int {
	defer tell(calls)()
	if w, limit, err := wish(); err == nil {
		return C.int(gpu.UsableNCCL(w, limit))
	}
	return 0
}

//export goCUDAReport
func goCUDAReport(out, calls C.int) {
	defer tell(calls)()
	gpu.ReportCUDA(descriptor(out))
}

//export goNCCLReport
func goNCCLReport(out, calls C.int) {
	defer tell(calls)()
	w, _, err := wish()
	if err != nil {
		fmt.Fprintf(descriptor(out), "WRONG: no job can start: %v\n", err)
	}
	gpu.ReportNCCL(descriptor(out), w)
}

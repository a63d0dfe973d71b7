package main

/*
#include <stdlib.h>
#include <string.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/joining/process"
)

var handles process.Handles

// bytes views C memory.
func bytes(p unsafe.Pointer, n int64) []byte {
	if p == nil || n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(p), n)
}

//export goEnqueue
func goEnqueue(c *C.gorovod_op, handle *C.int64_t, reason *C.char) C.int {
	var op engine.Op
	if err := translate(&op, c, ""); err != nil {
		explain(reason, err.Error())
		return C.GOROVOD_INVALID_ARGUMENT
	}
	number := callBack(&op, c)
	e, failure := process.Enqueue(&op)
	if failure != nil {
		explain(reason, failure.Reason)
		return C.int(failure.Code)
	}
	*handle = C.int64_t(name(e, c, number))
	return C.GOROVOD_OK
}

//export goRun
func goRun(c *C.gorovod_op, timeout C.int64_t, handle *C.int64_t, reason *C.char) C.int {
	var op engine.Op
	err := translate(&op, c, "")
	if err == nil && (!op.WillWait || op.Ended == nil || c.done != nil) {
		err = fmt.Errorf("gorovod_run needs the flags GOROVOD_WILL_WAIT and GOROVOD_RELEASE_IF_OK, and takes no done")
	}
	if err != nil {
		disown([]engine.Op{op})
		explain(reason, err.Error())
		return C.GOROVOD_INVALID_ARGUMENT
	}
	e, failure := process.Enqueue(&op)
	if failure != nil {
		explain(reason, failure.Reason)
		return C.int(failure.Code)
	}
	code := engine.InProgress
	if e.Wait(duration(timeout)) {
		var why string
		if code, why = outcome(e); code == engine.OK {
			e.Release()
			return C.GOROVOD_OK
		}
		explain(reason, why)
	}
	*handle = C.int64_t(name(e, c, nil))
	return C.int(code)
}

// groupCall is the memory of one call of goEnqueueGroup. It is reused.
type groupCall struct {
	ops     []engine.Op
	names   []byte // names of the operations that the caller has not named, one after the other
	numbers []chan int64
}

var groupCalls = sync.Pool{New: func() any { return new(groupCall) }}

// put returns the memory to the pool, and drops all references to the operations' data.
func (g *groupCall) put() {
	clear(g.ops)
	clear(g.numbers)
	groupCalls.Put(g)
}

//export goEnqueueGroup
func goEnqueueGroup(group *C.char, list **C.gorovod_op, n C.int, out *C.int64_t, reason *C.char) C.int {
	g := groupCalls.Get().(*groupCall)
	defer g.put()
	g.ops = slices.Grow(g.ops[:0], int(n))[:n] // empty, see put
	g.numbers = slices.Grow(g.numbers[:0], int(n))[:n]
	prefix := ""
	if group != nil {
		if prefix = view(group); prefix == "" {
			explain(reason, "the group's name is empty; NULL has the library give one")
			return C.GOROVOD_INVALID_ARGUMENT
		}
	}
	g.names = slices.Grow(g.names[:0], int(n)*(len(prefix)+len("_10of10")+2*10)) // never moved below
	cs := unsafe.Slice(list, int(n))
	for i, c := range cs {
		unnamed := ""
		if c.name == nil && group != nil {
			start := len(g.names)
			g.names = operation.AppendMember(g.names, prefix, i, int(n))
			unnamed = unsafe.String(&g.names[start], len(g.names)-start)
		}
		err := translate(&g.ops[i], c, unnamed)
		if err == nil && group == nil && c.name != nil {
			err = fmt.Errorf("it has a name, but the group has none")
		}
		if err == nil && g.ops[i].Type.Describe().Role == operation.Meeting {
			err = fmt.Errorf("a barrier or join cannot be in a group")
		}
		if err != nil {
			explain(reason, fmt.Sprintf("operation %d of the group: %v", i, err))
			disown(g.ops)
			return C.GOROVOD_INVALID_ARGUMENT
		}
		g.numbers[i] = callBack(&g.ops[i], c)
	}
	entries, failure := process.EnqueueGroup(prefix, g.ops)
	if failure != nil {
		explain(reason, failure.Reason)
		return C.int(failure.Code)
	}
	for i, e := range entries {
		unsafe.Slice(out, int(n))[i] = C.int64_t(name(e, cs[i], g.numbers[i]))
	}
	return C.GOROVOD_OK
}

// callBack sets the C function that is called at the end of op. The function needs the handle, which is known only
// after the submission, so the handle comes through the channel.
func callBack(op *engine.Op, c *C.gorovod_op) chan int64 {
	if c.done == nil {
		return nil
	}
	done, context := c.done, c.context
	number := make(chan int64, 1)
	op.Done = func(e *engine.Entry) { report(e, <-number, done, context) }
	return number
}

// report calls a C function with the operation's outcome.
func report(e *engine.Entry, handle int64, done *[0]byte, context unsafe.Pointer) {
	status, why := outcome(e)
	cwhy := C.CString(why)
	C.shim_call_done(done, context, C.int64_t(handle), C.int(status), cwhy)
	C.free(unsafe.Pointer(cwhy))
}

//export goOnDone
func goOnDone(handle C.int64_t, done, context unsafe.Pointer, reason *C.char) C.int {
	e := handles.Get(int64(handle))
	if e == nil {
		explain(reason, unknownHandle(handle))
		return C.GOROVOD_INVALID_ARGUMENT
	}
	defer e.Release()
	number := int64(handle)
	if err := e.OnDone(func(e *engine.Entry) { report(e, number, (*[0]byte)(done), context) }); err != nil {
		explain(reason, err.Error())
		return C.GOROVOD_INVALID_ARGUMENT
	}
	return C.GOROVOD_OK
}

// name gives an Entry its handle. Afterwards the Entry may have been released.
func name(e *engine.Entry, c *C.gorovod_op, number chan int64) int64 {
	var h int64
	if c.flags&C.GOROVOD_RELEASE_IF_OK != 0 {
		h = handles.AddUntilOK(e)
	} else {
		h = handles.Add(e)
	}
	if number != nil {
		number <- h
	}
	return h
}

// view returns a C string's memory as a Go string, without a copy.
func view(s *C.char) string {
	p := unsafe.Pointer(s)
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return unsafe.String((*byte)(p), n)
}

// releaseIfOK is made once, because each method value is an allocation.
var releaseIfOK = handles.ReleaseIfOK

// translate makes an engine.Op of a C operation. Its name is unnamed if the C operation has none; if both are empty,
// the engine gives a name. The Op's name and shape are views of C memory.
func translate(op *engine.Op, c *C.gorovod_op, unnamed string) error {
	*op = engine.Op{
		Type: operation.Kind(c._type), DType: tensor.DType(c.dtype), ReduceOp: tensor.ReduceOp(c.reduce_op),
		Root: int(c.root_rank), Set: int(c.process_set), Prescale: float64(c.prescale), Postscale: float64(c.postscale),
		Wire: tensor.Wire(c.wire), Stream: int64(c.stream),
		InOf: uintptr(c.input_of), OutOf: uintptr(c.output_of),
		WillWait: c.flags&C.GOROVOD_WILL_WAIT != 0, HoldsCaller: c.flags&C.GOROVOD_HOLDS_CALLER != 0,
		Status: (*int32)(unsafe.Pointer(c.status)), Name: unnamed, Copied: c.flags&C.GOROVOD_COPIED != 0,
		AddsUp: c.flags&C.GOROVOD_ADDS_UP != 0,
	}
	if c.flags&C.GOROVOD_RELEASE_IF_OK != 0 {
		op.Ended = releaseIfOK
	}
	switch {
	case c.flags&^(C.GOROVOD_WILL_WAIT|C.GOROVOD_RELEASE_IF_OK|C.GOROVOD_HOLDS_CALLER|C.GOROVOD_COPIED|
		C.GOROVOD_ADDS_UP) != 0:
		return fmt.Errorf("unknown flags %#x", uint32(c.flags))
	case c.device < negotiate.CPUDevice:
		return fmt.Errorf("device %d: -1 is host memory, and a device has a number from 0 on", int(c.device))
	case c.device != negotiate.CPUDevice && (c.ready != nil || c.flags&C.GOROVOD_COPIED != 0):
		return fmt.Errorf("device %d: ready and GOROVOD_COPIED are for host memory (-1)", int(c.device))
	case c.device == negotiate.CPUDevice && c.device_stream != 0:
		return fmt.Errorf("device_stream is set, but device says host memory (-1)")
	case c.priority != 0:
		return fmt.Errorf("priority %d: this version knows no priorities; it must be 0", int(c.priority))
	case c.ndim < 0 || c.ndim > negotiate.MaxDims:
		return fmt.Errorf("%d dimensions: 0 to %d are possible", int(c.ndim), negotiate.MaxDims)
	case c.ndim > 0 && c.shape == nil:
		return fmt.Errorf("shape is NULL, but there are %d dimensions", int(c.ndim))
	case c._type < 0 || c._type > 255 || c.dtype < 0 || c.dtype > 255 || c.reduce_op < 0 || c.reduce_op > 255:
		return fmt.Errorf("operation %d, data type %d or reduce operation %d is unknown", int(c._type), int(c.dtype),
			int(c.reduce_op))
	}
	switch {
	case c.wire < 0 || c.wire >= tensor.NumWires:
		return fmt.Errorf("wire %d is unknown", int(c.wire))
	case c.flags&C.GOROVOD_RELEASE_IF_OK != 0 && c.status == nil:
		return fmt.Errorf("a handle that is released by itself needs a status")
	case c.nsplits < 0 || c.nsplits > 0 && c.splits == nil:
		return fmt.Errorf("%d splits at a NULL pointer", int(c.nsplits))
	}
	op.Type = operation.Of(op.Type, op.ReduceOp)
	d := op.Type.Describe()
	if d.Output == operation.OfKeys {
		return fmt.Errorf("operation %d is submitted by gorovod_pull or gorovod_push", int(c._type))
	}
	switch d.Role {
	case operation.Meeting:
		return nil
	case operation.Collective:
	default:
		return fmt.Errorf("operation %d is unknown", int(c._type))
	}
	if c.name != nil {
		op.Name = view(c.name)
	}
	op.Unnamed = c.name == nil && unnamed == ""
	op.Shape = unsafe.Slice((*int64)(unsafe.Pointer(c.shape)), int(c.ndim))
	n, err := op.Shape.NumElements()
	if err != nil {
		return err
	}
	n *= int64(op.DType.Size())
	if n > 0 && c.input == nil {
		return fmt.Errorf("tensor %q: input is NULL", op.Name)
	}
	op.In = bytes(unsafe.Pointer(c.input), n)
	op.Splits = unsafe.Slice((*int32)(unsafe.Pointer(c.splits)), int(c.nsplits))
	if err := translateOutput(op, d, c); err != nil {
		return err
	}
	if ready, context := c.ready, c.context; ready != nil {
		op.Ready = func() bool { return C.shim_call_ready(ready, context) != 0 }
	}
	if c.device != negotiate.CPUDevice {
		op.Owner = owner(c)
		if c.alloc == nil {
			onDevice(op)
		}
	}
	return nil
}

// translateOutput sets where the output of op goes. Its input must be set already.
func translateOutput(op *engine.Op, d *operation.Descriptor, c *C.gorovod_op) error {
	switch {
	case d.Output == operation.OfAll || d.Output == operation.Sent || d.Output == operation.OwnRows && c.output == nil:
		alloc, context := c.alloc, c.context
		if alloc != nil && context != nil && C.shim_gives_output(alloc) {
			given := (*C.gorovod_memory)(context)
			op.Target = bytes(given.data, int64(given.bytes))
		}
		op.Alloc = func(shape tensor.Shape, n int) ([]byte, error) { return allocate(alloc, context, shape, n) }
		if alloc == nil {
			op.Free = func(out []byte) { C.free(unsafe.Pointer(unsafe.SliceData(out))) }
		}
	case d.Output == operation.OwnRows:
		rank, size, err := process.Place(d.Name, op.Set)
		if err != nil || len(op.Shape) == 0 { // the ranks will refuse a scalar
			return err
		}
		if rows := operation.Share(op.Shape[0], rank, size); rows > 0 {
			op.Out = bytes(c.output, rows*(int64(len(op.In))/op.Shape[0]))
		}
	default:
		if len(op.In) > 0 && c.output == nil && d.Output != operation.OnRootOnly {
			return fmt.Errorf("tensor %q: output is NULL", op.Name)
		}
		op.Out = bytes(c.output, int64(len(op.In)))
	}
	return nil
}

// allocate returns memory for the output of an operation, from the caller's alloc or otherwise from malloc.
func allocate(alloc *[0]byte, context unsafe.Pointer, shape tensor.Shape, n int) ([]byte, error) {
	var p unsafe.Pointer
	if alloc != nil {
		dims := make([]C.int64_t, len(shape)+1)
		for i, d := range shape {
			dims[i] = C.int64_t(d)
		}
		p = C.shim_call_alloc(alloc, context, C.size_t(n), C.int(len(shape)), &dims[0])
	} else {
		p = C.malloc(C.size_t(max(1, n)))
	}
	switch {
	case p == nil && alloc != nil:
		return nil, fmt.Errorf("the caller has no memory of this size")
	case p == nil:
		return nil, fmt.Errorf("no memory")
	}
	// A slice of length 0 still has to carry the address.
	return unsafe.Slice((*byte)(p), max(1, n))[:n], nil
}

func outcome(e *engine.Entry) (engine.Code, string) {
	if err := e.Err(); err != nil {
		return err.Code, err.Reason
	}
	return engine.OK, ""
}

//export goWait
func goWait(handle, timeout C.int64_t, reason *C.char) C.int {
	e := handles.Get(int64(handle))
	if e == nil {
		explain(reason, unknownHandle(handle))
		return C.GOROVOD_INVALID_ARGUMENT
	}
	defer e.Release()
	if timeout == 0 && !e.Poll() || timeout != 0 && !e.Wait(duration(timeout)) {
		return C.GOROVOD_IN_PROGRESS
	}
	status, why := outcome(e)
	if why != "" {
		explain(reason, why)
	}
	return C.int(status)
}

// duration is a timeout in milliseconds; below 0 there is no limit.
func duration(timeout C.int64_t) time.Duration {
	if timeout < 0 {
		return -1
	}
	return time.Duration(min(int64(timeout), 1<<40)) * time.Millisecond
}

//export goOutput
func goOutput(handle C.int64_t, data *unsafe.Pointer, maxDims C.int, ndim *C.int, shape *C.int64_t,
	reason *C.char) C.int {
	e, status := finished(handle, reason)
	if e == nil {
		return status
	}
	defer e.Release()
	out, dims := e.Output()
	if data != nil {
		*data = unsafe.Pointer(unsafe.SliceData(out))
	}
	if ndim != nil {
		*ndim = C.int(len(dims))
	}
	if shape != nil && maxDims > 0 {
		to := unsafe.Slice(shape, int(maxDims))
		for i := range min(len(to), len(dims)) {
			to[i] = C.int64_t(dims[i])
		}
	}
	return C.GOROVOD_OK
}

//export goTakeOutput
func goTakeOutput(handle C.int64_t, data *unsafe.Pointer, reason *C.char) C.int {
	e, status := finished(handle, reason)
	if e == nil {
		return status
	}
	defer e.Release()
	out := e.TakeOutput()
	if out == nil {
		explain(reason, "the engine does not own the output of this operation")
		return C.GOROVOD_INVALID_ARGUMENT
	}
	*data = unsafe.Pointer(unsafe.SliceData(out))
	if len(out) == 0 && e.Owner() != nil {
		*data = nil // there is no memory of a device to free
	}
	return C.GOROVOD_OK
}

// finished returns the retained Entry of an operation that has succeeded.
func finished(handle C.int64_t, reason *C.char) (*engine.Entry, C.int) {
	e := handles.Get(int64(handle))
	if e == nil {
		explain(reason, unknownHandle(handle))
		return nil, C.GOROVOD_INVALID_ARGUMENT
	}
	if !e.Done() {
		e.Release()
		explain(reason, "the operation is in progress")
		return nil, C.GOROVOD_IN_PROGRESS
	}
	if status, why := outcome(e); status != engine.OK {
		e.Release()
		explain(reason, why)
		return nil, C.int(status)
	}
	return e, C.GOROVOD_OK
}

//export goRelease
func goRelease(handle C.int64_t, reason *C.char) C.int {
	e := handles.Remove(int64(handle))
	if e == nil {
		explain(reason, unknownHandle(handle))
		return C.GOROVOD_INVALID_ARGUMENT
	}
	e.Release()
	return C.GOROVOD_OK
}

//export goReceivedSplits
func goReceivedSplits(handle C.int64_t, n C.int, splits *C.int32_t, reason *C.char) C.int {
	e, _ := finished(handle, reason)
	if e == nil {
		return -1
	}
	defer e.Release()
	all := e.ReceivedSplits()
	if all == nil {
		explain(reason, "the operation is not an alltoall")
		return -1
	}
	if n > 0 {
		to := unsafe.Slice(splits, int(n))
		for i := range min(len(to), len(all)) {
			to[i] = C.int32_t(all[i])
		}
	}
	return C.int(len(all))
}

//export goName
func goName(handle C.int64_t, name *C.char) {
	if e := handles.Get(int64(handle)); e != nil {
		explain(name, e.Name())
		e.Release()
	}
}

//export goLastJoined
func goLastJoined(handle C.int64_t, reason *C.char) C.int {
	e, _ := finished(handle, reason)
	if e == nil {
		return -1
	}
	defer e.Release()
	if e.Type() != operation.Join {
		explain(reason, "the operation is not a join")
		return -1
	}
	return C.int(e.LastJoined())
}

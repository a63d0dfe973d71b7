//go:build cgo && linux

package cuda

/*
#include "load.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Context is the primary context of a device: the one that PyTorch and JAX use.
type Context struct {
	driver *Driver
	device int
	handle C.uintptr_t
}

// Context returns the primary context of a device. It makes the context if there is none yet, which takes seconds and
// some hundred MB of the device's memory, and keeps it until the process ends.
func (d *Driver) Context(ordinal int) (*Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.contexts[ordinal]; c != nil {
		return c, nil
	}
	if ordinal < 0 || ordinal >= d.devices {
		return nil, &NoDevice{ordinal, d.devices}
	}
	var facts C.struct_gv_cuda_facts
	facts.device.ordinal = C.int(ordinal)
	if err := d.ask(&facts, C.GV_DEVICE, C.GV_DEVICE_CONTEXT); err != nil {
		return nil, fmt.Errorf("use device %d: %w", ordinal, err)
	}
	c := &Context{driver: d, device: ordinal, handle: facts.device.context}
	d.contexts[ordinal] = c
	return c, nil
}

// Device is the ordinal of the context's device.
func (c *Context) Device() int { return c.device }

// Driver is the driver whose context it is.
func (c *Context) Driver() *Driver { return c.driver }

// Handle is the CUcontext.
func (c *Context) Handle() uintptr { return uintptr(c.handle) }

// NewStream makes a stream of the greatest priority. The default stream does not wait for it.
func (c *Context) NewStream() (Stream, error) {
	var s C.uintptr_t
	code := C.gv_cuda_stream_create(c.driver.f, c.handle, &s)
	return Stream(s), c.check("cuStreamCreateWithPriority", code)
}

// FreeStream destroys a stream. Work that is in the stream still runs to its end.
func (c *Context) FreeStream(s Stream) error {
	return c.call("cuStreamDestroy", C.GV_STREAM_DESTROY, 0, 0, 0, s)
}

// Idle reports whether all work of a stream is done.
func (c *Context) Idle(s Stream) (bool, error) {
	return c.ready("cuStreamQuery", C.GV_STREAM_QUERY, 0, s)
}

// Synchronize blocks until all work of a stream is done.
func (c *Context) Synchronize(s Stream) error {
	return c.call("cuStreamSynchronize", C.GV_STREAM_SYNCHRONIZE, 0, 0, 0, s)
}

// Capturing reports whether a graph is being captured from a stream. Work that is enqueued meanwhile does not run now.
func (c *Context) Capturing(s Stream) (bool, error) {
	var status C.int
	code := C.gv_cuda_capturing(c.driver.f, c.handle, C.uintptr_t(s), &status)
	return status != C.GV_CU_CAPTURE_NONE, c.check("cuStreamIsCapturing", code)
}

// NewEvent makes an event that measures no time.
func (c *Context) NewEvent() (Event, error) {
	var e C.uintptr_t
	code := C.gv_cuda_event_create(c.driver.f, c.handle, &e)
	return Event(e), c.check("cuEventCreate", code)
}

// FreeEvent destroys an event. Streams that wait for it still do.
func (c *Context) FreeEvent(e Event) error {
	return c.call("cuEventDestroy", C.GV_EVENT_DESTROY, uintptr(e), 0, 0, 0)
}

// Record makes an event reached once a stream has done all its present work. The stream may be any of this device, also
// one of the program.
func (c *Context) Record(e Event, s Stream) error {
	return c.call("cuEventRecord", C.GV_EVENT_RECORD, uintptr(e), 0, 0, s)
}

// Reached reports whether an event has been reached. An event that was never recorded counts as reached.
func (c *Context) Reached(e Event) (bool, error) {
	return c.ready("cuEventQuery", C.GV_EVENT_QUERY, uintptr(e), 0)
}

// Wait makes the later work of a stream wait until an event, of any device, is reached. The caller does not wait.
func (c *Context) Wait(s Stream, e Event) error {
	return c.call("cuStreamWaitEvent", C.GV_STREAM_WAIT, uintptr(e), 0, 0, s)
}

// Alloc allocates device memory, aligned to 256 bytes.
func (c *Context) Alloc(size int) (Address, error) {
	a, err := c.alloc("cuMemAlloc", size, 0)
	return Address(a), err
}

// Free frees what Alloc returned. It may wait for the device.
func (c *Context) Free(a Address) error {
	return c.call("cuMemFree", C.GV_FREE, uintptr(a), 0, 0, 0)
}

// AllocHost allocates host memory that devices can reach, so that copies from and to it do not block.
func (c *Context) AllocHost(size int) (unsafe.Pointer, error) {
	a, err := c.alloc("cuMemHostAlloc", size, 1)
	return *(*unsafe.Pointer)(unsafe.Pointer(&a)), err
}

// FreeHost frees what AllocHost returned. It may wait for the device.
func (c *Context) FreeHost(p unsafe.Pointer) error {
	return c.call("cuMemFreeHost", C.GV_FREE_HOST, uintptr(p), 0, 0, 0)
}

// Memory returns how many bytes of the device's memory are free, and how many there are.
func (c *Context) Memory() (free, total uint64, err error) {
	var l, t C.size_t
	code := C.gv_cuda_memory(c.driver.f, c.handle, &l, &t)
	return uint64(l), uint64(t), c.check("cuMemGetInfo", code)
}

// Copy copies within the device, as work of a stream. The next three functions are work of a stream, too.
func (c *Context) Copy(to, from Address, size int, s Stream) error {
	return c.call("cuMemcpyDtoDAsync", C.GV_COPY, uintptr(to), uintptr(from), size, s)
}

// CopyFromHost blocks unless the memory is of AllocHost's kind.
func (c *Context) CopyFromHost(to Address, from unsafe.Pointer, size int, s Stream) error {
	return c.call("cuMemcpyHtoDAsync", C.GV_COPY_FROM_HOST, uintptr(to), uintptr(from), size, s)
}

// CopyToHost blocks unless the memory is of AllocHost's kind.
func (c *Context) CopyToHost(to unsafe.Pointer, from Address, size int, s Stream) error {
	return c.call("cuMemcpyDtoHAsync", C.GV_COPY_TO_HOST, uintptr(to), uintptr(from), size, s)
}

// Zero fills device memory with zeros.
func (c *Context) Zero(a Address, size int, s Stream) error {
	return c.call("cuMemsetD8Async", C.GV_ZERO, uintptr(a), 0, size, s)
}

func (c *Context) alloc(name string, size int, host C.int) (uintptr, error) {
	var a C.uintptr_t
	code := C.gv_cuda_alloc(c.driver.f, c.handle, C.size_t(size), host, &a)
	if code != 0 {
		return 0, fmt.Errorf("allocate %d bytes on device %d: %w", size, c.device, c.driver.fail(name, code))
	}
	return uintptr(a), nil
}

func (c *Context) call(name string, what C.int, a, b uintptr, size int, s Stream) error {
	return c.check(name, C.gv_cuda_call(c.driver.f, c.handle, what, C.uintptr_t(a), C.uintptr_t(b), C.size_t(size),
		C.uintptr_t(s)))
}

func (c *Context) ready(name string, what C.int, a uintptr, s Stream) (bool, error) {
	code := C.gv_cuda_call(c.driver.f, c.handle, what, C.uintptr_t(a), 0, 0, C.uintptr_t(s))
	if code == C.GV_CU_NOT_READY {
		return false, nil
	}
	return code == 0, c.check(name, code)
}

func (c *Context) check(name string, code C.CUresult) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("device %d: %w", c.device, c.driver.fail(name, code))
}

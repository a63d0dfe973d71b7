//go:build cgo && linux

package cuda

/*
#cgo CFLAGS: -Wall -Werror
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "load.h"
*/
import "C"

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"unsafe"
)

// Driver is the libcuda of this process.
type Driver struct {
	path    string
	version int
	devices int
	f       *C.struct_gv_cuda

	mu       sync.Mutex
	contexts map[int]*Context
}

var opened struct {
	sync.Mutex
	driver *Driver
}

const library = "libcuda.so.1"

// oldest is CUDA 11.4, the first driver with all functions that are needed here.
const oldest = 11040

// Open loads the driver and initialises it, but makes no context. A process has one Driver, and later calls return the
// same. The error is a sentence that says what is missing, and what to do.
func Open() (*Driver, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.driver != nil {
		return opened.driver, nil
	}
	d, err := load()
	if err != nil {
		return nil, err
	}
	opened.driver = d
	return d, nil
}

// Present returns the driver's file, and the newest CUDA that it can run, such as 12080, or 0 if it does not tell. The
// error says why there is no driver. Present loads the driver, but does not start it.
func Present() (file string, version int, err error) {
	handle, file, err := open()
	if err != nil {
		return "", 0, err
	}
	defer Begin("cuDriverGetVersion", file)()
	return file, int(C.gv_cuda_version(handle)), nil
}

func open() (handle unsafe.Pointer, path string, err error) {
	handle, path, err = OpenLibrary(library, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("CUDA's driver %s cannot be loaded (%w): install NVIDIA's driver, or give the container "+
			"access to the GPUs", library, err)
	case err != nil:
		err = fmt.Errorf("CUDA's driver %s cannot be loaded (%w): install NVIDIA's driver again", library, err)
	}
	return handle, path, err
}

func load() (*Driver, error) {
	handle, path, err := open()
	if err != nil {
		return nil, err
	}
	d := &Driver{
		path: path, contexts: make(map[int]*Context),
		f: (*C.struct_gv_cuda)(C.calloc(1, C.sizeof_struct_gv_cuda)),
	}
	if missing := C.gv_cuda_fill(d.f, handle); missing != nil {
		C.free(unsafe.Pointer(d.f))
		return nil, fmt.Errorf("CUDA's driver %s has no function %s: gorovod needs a driver for CUDA 11.4 or newer",
			path, C.GoString(missing))
	}
	if err := d.initialize(); err != nil {
		C.free(unsafe.Pointer(d.f))
		return nil, err
	}
	return d, nil
}

func (d *Driver) initialize() error {
	var facts C.struct_gv_cuda_facts
	if err := d.ask(&facts, C.GV_INIT, C.GV_DRIVER_VERSION, C.GV_DEVICE_COUNT); err != nil {
		if err.Code == C.GV_CU_NO_DEVICE {
			return fmt.Errorf("CUDA's driver %s sees no device: check nvidia-smi and CUDA_VISIBLE_DEVICES", d.path)
		}
		return fmt.Errorf("CUDA's driver %s does not start: %w: %s", d.path, err, advice(err.Code))
	}
	d.version, d.devices = int(facts.version), int(facts.devices)
	if d.version < oldest {
		return fmt.Errorf("CUDA's driver %s is for CUDA %s: gorovod needs a driver for CUDA 11.4 or newer", d.path,
			VersionText(d.version))
	}
	if d.devices < 0 {
		return fmt.Errorf("CUDA's driver %s sees %d devices, so it is damaged: install it again", d.path, d.devices)
	}
	if d.devices == 0 {
		return fmt.Errorf("CUDA's driver %s sees no device: check nvidia-smi and CUDA_VISIBLE_DEVICES", d.path)
	}
	return nil
}

// questions are the functions behind the calls of gv_cuda_ask.
var questions = [...]string{
	C.GV_INIT: "cuInit", C.GV_DRIVER_VERSION: "cuDriverGetVersion", C.GV_DEVICE_COUNT: "cuDeviceGetCount",
	C.GV_DEVICE: "cuDeviceGet", C.GV_DEVICE_NAME: "cuDeviceGetName", C.GV_DEVICE_BUS: "cuDeviceGetPCIBusId",
	C.GV_DEVICE_UUID: "cuDeviceGetUuid", C.GV_DEVICE_MEMORY: "cuDeviceTotalMem",
	C.GV_DEVICE_MAJOR: "cuDeviceGetAttribute", C.GV_DEVICE_MINOR: "cuDeviceGetAttribute",
	C.GV_DEVICE_CONTEXT: "cuDevicePrimaryCtxRetain",
}

// ask makes calls of gv_cuda_ask, up to the first that fails.
func (d *Driver) ask(facts *C.struct_gv_cuda_facts, calls ...C.int) *Error {
	for _, what := range calls {
		end := Begin(questions[what], d.path)
		code := C.gv_cuda_ask(d.f, what, facts)
		end()
		if code != 0 {
			return d.fail(questions[what], code)
		}
	}
	return nil
}

// OpenLibrary opens a library by name or path until the process ends, and returns its file. With onlyLoaded it opens
// the library only if the process has loaded it already. The error is fs.ErrNotExist if there is no such library.
func OpenLibrary(name string, onlyLoaded bool) (handle unsafe.Pointer, file string, err error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	at, why := (*C.char)(C.calloc(1, C.GV_TEXT)), (*C.char)(C.calloc(1, C.GV_TEXT))
	defer C.free(unsafe.Pointer(at))
	defer C.free(unsafe.Pointer(why))
	only := C.int(0)
	if onlyLoaded {
		only = 1
	}
	end := Begin("dlopen", located(name))
	handle = C.gv_open(cname, only, at, why)
	end()
	if handle == nil {
		return nil, "", &loadError{name, C.GoString(why)}
	}
	return handle, C.GoString(at), nil
}

// loadError is the dynamic loader's failure to open a library.
type loadError struct{ name, why string }

func (e *loadError) Error() string { return e.why }

// Is reports whether the error is fs.ErrNotExist, and the library itself is missing. If it needs another one that is
// missing, the loader names that one.
func (e *loadError) Is(target error) bool {
	return target == fs.ErrNotExist && strings.Contains(e.why, e.name) && strings.Contains(e.why, "No such file")
}

// Path is the driver's file.
func (d *Driver) Path() string { return d.path }

// Version is the newest CUDA that the driver can run, such as 12080 for 12.8.
func (d *Driver) Version() int { return d.version }

// Count is the number of devices that this process sees, at least 1.
func (d *Driver) Count() int { return d.devices }

// Table returns the driver's functions, a C struct gv_cuda, for packages with C code of their own.
func (d *Driver) Table() unsafe.Pointer { return unsafe.Pointer(d.f) }

// Device describes a device.
func (d *Driver) Device(ordinal int) (Device, error) {
	var facts C.struct_gv_cuda_facts
	c := &facts.device
	c.ordinal = C.int(ordinal)
	if err := d.ask(&facts, C.GV_DEVICE, C.GV_DEVICE_NAME, C.GV_DEVICE_BUS, C.GV_DEVICE_UUID, C.GV_DEVICE_MEMORY,
		C.GV_DEVICE_MAJOR, C.GV_DEVICE_MINOR); err != nil {
		return Device{}, fmt.Errorf("device %d of %d: %w", ordinal, d.devices, err)
	}
	u := hex.EncodeToString(C.GoBytes(unsafe.Pointer(&c.uuid), C.int(len(c.uuid))))
	return Device{
		Ordinal: ordinal, Name: C.GoString(&c.name[0]), Bus: C.GoString(&c.bus[0]), Memory: uint64(c.memory),
		Major: int(c.major), Minor: int(c.minor),
		UUID: "GPU-" + u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:],
	}, nil
}

// DeviceOf returns the device whose memory an address belongs to, or -1 if the address is no device's.
func (d *Driver) DeviceOf(address uintptr) (int, error) {
	var ordinal C.int
	if code := C.gv_cuda_device_of(d.f, C.uintptr_t(address), &ordinal); code != 0 {
		return -1, d.fail("cuPointerGetAttribute", code)
	}
	return int(ordinal), nil
}

// Failure makes an error of a CUresult that the C code of another package got from the driver.
func (d *Driver) Failure(call string, code int) error { return d.fail(call, C.CUresult(code)) }

// fail makes an error of a code that is not success.
func (d *Driver) fail(call string, code C.CUresult) *Error {
	e := &Error{Call: call, Code: int(code)}
	if text := C.gv_cuda_text(d.f, code, 1); text != nil {
		e.Name = C.GoString(text)
	}
	if text := C.gv_cuda_text(d.f, code, 0); text != nil {
		e.Text = C.GoString(text)
	}
	return e
}

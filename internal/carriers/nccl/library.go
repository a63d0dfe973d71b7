//go:build cgo && linux

package nccl

/*
#cgo CFLAGS: -Wall -Werror
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// Library is the libnccl of this process.
type Library struct {
	path    string
	version int
	cuda    int // the major version of CUDA that it was built for; 0: not known
	f       *C.struct_gv_nccl
}

var opened struct {
	sync.Mutex
	library *Library
}

// Open finds and loads NCCL, and checks that it is of use. A process has one Library, and later calls return the same.
// The error is a sentence that says what is missing or unfit, and what to do. Open needs no device.
func Open() (*Library, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.library != nil {
		return opened.library, nil
	}
	l, err := find()
	if err != nil {
		return nil, err
	}
	opened.library = l
	return l, nil
}

// fit loads the functions of an open library, and checks its version.
func fit(handle unsafe.Pointer, path string) (*Library, error) {
	l := &Library{path: path, f: (*C.struct_gv_nccl)(C.calloc(1, C.sizeof_struct_gv_nccl))}
	missing := C.gv_nccl_fill(l.f, handle)
	end := cuda.Begin("ncclGetVersion", path)
	var version C.int
	code := C.gv_nccl_version(l.f, &version)
	end()
	if code == 0 {
		l.version = int(version)
	}
	if l.version != 0 && l.version < oldest {
		missing = nil // the version says it better
	}
	switch {
	case missing != nil:
		name := C.GoString(missing)
		C.free(unsafe.Pointer(l.f))
		return nil, fmt.Errorf("NCCL's library %s has no function %s, so it is damaged or no NCCL: install NCCL %s or "+
			"newer", path, name, VersionText(oldest))
	case code != 0:
		err := l.fail(nil, "ncclGetVersion", code, 0)
		C.free(unsafe.Pointer(l.f))
		return nil, fmt.Errorf("NCCL's library %s does not tell its version (%w): install its package again", path, err)
	case !known(l.version):
		C.free(unsafe.Pointer(l.f))
		return nil, l.unfit()
	}
	return l, nil
}

// known reports whether a version is one that this package can use.
func known(version int) bool { return version >= oldest && version/10000 == newestKnown }

func (l *Library) unfit() error {
	return fmt.Errorf("NCCL's library %s is version %s: gorovod needs %s or newer, of NCCL %d", l.path,
		VersionText(l.version), VersionText(oldest), newestKnown)
}

// Path is the library's file.
func (l *Library) Path() string { return l.path }

// Version is NCCL's version code, such as 21805 for 2.18.5.
func (l *Library) Version() int { return l.version }

// CUDA is the major version of CUDA that the library was built for; 0 if it does not tell.
func (l *Library) CUDA() int { return l.cuda }

// Runs returns nil if a driver can run the library. The error is a sentence that says why not, and what to do.
func (l *Library) Runs(d *cuda.Driver) error { return l.RunsOn(d.Path(), d.Version()) }

// RunsOn is Runs for a driver's file, and the newest CUDA that it can run; 0 is unknown.
func (l *Library) RunsOn(driver string, newest int) error {
	if newest == 0 || l.cuda <= newest/1000 {
		return nil
	}
	return fmt.Errorf("NCCL's library %s (%s) is built for CUDA %d, and the driver %s runs CUDA %s at most: update "+
		"the driver, or install the package nvidia-nccl-cu%d and a framework for CUDA %[6]d", l.path,
		VersionText(l.version), l.cuda, driver, cuda.VersionText(newest), newest/1000)
}

// Has reports whether this NCCL knows a type.
func (l *Library) Has(t DType) bool {
	return t < Float8E4M3 || t <= Float8E5M2 && l.version >= withFloat8
}

// SharesDevices reports whether several members of a communicator may have the same device. NCCL allows that only if
// the user sets NCCL_MULTI_RANK_GPU_ENABLE to 1.
func (l *Library) SharesDevices() bool {
	return l.version >= withSharing && os.Getenv("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
}

// CanSplit reports whether Comm.Split works.
func (l *Library) CanSplit() bool { return l.version >= withSplit && l.f.ncclCommSplit != nil }

// CanShrink reports whether Comm.Shrink works.
func (l *Library) CanShrink() bool { return l.version >= withShrink && l.f.ncclCommShrink != nil }

// NewUniqueID makes the name of a communicator. This process must be a member of the communicator, and live until it is
// made.
func (l *Library) NewUniqueID() (id UniqueID, err error) {
	if code := C.gv_nccl_unique_id(l.f, unsafe.Pointer(&id)); code != 0 {
		return id, l.fail(nil, "ncclGetUniqueId", code, 0)
	}
	return id, nil
}

// NewComm begins to make a communicator of size members. This process is member number rank, with the device of c.
// NewComm returns at once. Comm.Ready reports when the communicator is ready, which is after all members have called.
func (l *Library) NewComm(c *cuda.Context, size int, id UniqueID, rank int) (*Comm, error) {
	comm := l.newComm(c)
	code := C.gv_nccl_init(&comm.place, comm.slot, C.int(size), unsafe.Pointer(&id), C.int(rank))
	return comm.made("ncclCommInitRankConfig", code)
}

func (l *Library) newComm(c *cuda.Context) *Comm {
	slot := (*C.uintptr_t)(C.calloc(1, C.sizeof_uintptr_t))
	return &Comm{library: l, context: c, slot: slot, place: C.struct_gv_place{
		nccl: l.f, cuda: (*C.struct_gv_cuda)(c.Driver().Table()), context: C.uintptr_t(c.Handle()),
	}}
}

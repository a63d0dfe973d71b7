// Command libgorovod is the C interface of the engine, built with
// -buildmode=c-shared; include/gorovod.h is its contract. shim.c holds the
// exported functions, which call the functions of this package. Nothing but
// translation happens here.
package main

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
	"github.com/gorovod/gorovod/internal/joining/process"
)

func main() {}

func init() {
	process.EndsByExit = true
	if file := C.shim_library(); file != nil {
		process.Library = C.GoString(file)
	}
	process.TrackFD = func(fd int, open bool) {
		var o C.int
		if open {
			o = 1
		}
		C.shim_track_fd(C.int(fd), o)
	}
}

// explain writes a reason into a thread's buffer of REASON_BYTES.
func explain(buf *C.char, reason string) {
	dst := unsafe.Slice((*byte)(unsafe.Pointer(buf)), C.REASON_BYTES)
	n := copy(dst[:len(dst)-1], reason)
	dst[n] = 0
}

// getenv reads the environment as C sees it now. Go's copy lacks the variables that Python has put into os.environ
// since the start.
func getenv(name string) (string, bool) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	v := C.getenv(cname)
	if v == nil {
		return "", false
	}
	return C.GoString(v), true
}

//export goInit
func goInit(ranks *C.int, nranks C.int, setRanks, setSizes *C.int, nsets C.int, reason *C.char) C.int {
	// A list of MPI ranks means nothing without MPI; Horovod ignores it too.
	return initialize(process.Options{Sets: lists(setRanks, setSizes, nsets),
		MPIRanks: ints(unsafe.Slice(ranks, max(0, int(nranks))))}, reason)
}

//export goInitMultiComm
func goInitMultiComm(comms unsafe.Pointer, ncomms C.int, setRanks, setSizes *C.int, nsets C.int, reason *C.char) C.int {
	handles := func(l *mpi.Library) []uintptr {
		all := make([]uintptr, int(ncomms))
		for i := range all {
			all[i] = l.HandleAt(comms, i)
		}
		return all
	}
	return initialize(process.Options{Sets: lists(setRanks, setSizes, nsets), MPIComms: handles}, reason)
}

func initialize(o process.Options, reason *C.char) C.int {
	var err error
	withUsableCores(func() { err = process.InitWith(context.Background(), getenv, o) })
	if err != nil {
		explain(reason, err.Error())
		return 0
	}
	return 1
}

// lists returns n lists, which stand one after the other in numbers.
func lists(numbers, sizes *C.int, n C.int) [][]int {
	all := make([][]int, int(n))
	at := 0
	for i := range all {
		n := int(unsafe.Slice(sizes, len(all))[i])
		all[i] = ints(unsafe.Slice(numbers, at+n)[at:])
		at += n
	}
	return all
}

//export goPrintError
func goPrintError(text *C.char) { logging.Print(slog.LevelError, "gorovod", C.GoString(text)) }

//export goShutdown
func goShutdown() { process.Shutdown() }

//export goIsInitialized
func goIsInitialized() C.int {
	if process.World() == nil {
		return 0
	}
	return 1
}

//export goIsHomogeneous
func goIsHomogeneous() C.int {
	if w := process.World(); w != nil && !w.Homogeneous {
		return 0
	}
	return 1
}

//export goTopology
func goTopology(which C.int) C.int {
	w := process.World()
	if w == nil {
		return -1
	}
	c := w.Place
	return C.int([...]int{c.Rank, c.Size, c.LocalRank, c.LocalSize, c.CrossRank, c.CrossSize}[which])
}

var cVersion = C.CString(version.Version)

//export goVersion
func goVersion() *C.char { return cVersion }

var cFacts = sync.OnceValue(func() *C.char { return C.CString(operation.Facts()) })

//export goFacts
func goFacts() *C.char { return cFacts() }

//export goShare
func goShare(rows C.int64_t, rank, size C.int) C.int64_t {
	if rows < 0 || rank < 0 || rank >= size {
		return -1
	}
	return C.int64_t(operation.Share(int64(rows), int(rank), int(size)))
}

//export goShareBegin
func goShareBegin(rows C.int64_t, rank, size C.int) C.int64_t {
	if rows < 0 || rank < 0 || rank >= size {
		return -1
	}
	return C.int64_t(operation.Begin(int64(rows), int(rank), int(size)))
}

//export goCounters
func goCounters(values *C.int64_t, n C.int) C.int {
	w := process.World()
	if w == nil {
		return 0
	}
	k := w.Engine.Counters()
	all := [...]int64{k.WakeUps.Load(), k.Ops.Load(), k.Batches.Load(), k.Requests.Load(), k.Marks.Load(),
		w.Engine.KeptBytes(), k.NaNs.Load()}
	out := unsafe.Slice(values, max(0, int(n)))
	for i := range min(len(out), len(all)) {
		out[i] = C.int64_t(all[i])
	}
	return C.int(len(all))
}

func unknownHandle(handle C.int64_t) string {
	return fmt.Sprintf("handle %d was not created or has been cleared", int64(handle))
}

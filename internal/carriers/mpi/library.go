//go:build cgo && linux

package mpi

/*
#cgo CFLAGS: -Wall -Werror
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "libmpi.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Library is the libmpi of this process. Its methods are safe on any goroutine.
type Library struct {
	path    string
	version string

	// mu guards MPI and call: at any level of threads MPI has one caller at a time.
	mu        sync.Mutex
	functions *C.struct_gv_library
	call      *C.struct_gv_call
	thread    chan struct{} // if not nil, the only thread that may call MPI runs call for each token
	returned  chan struct{}
	ours      bool // Init has initialised MPI, so Finalize finalizes it
	finalized bool
	atExit    func(error) // hears why MPI_Finalize does not return at the end of the process; nil: Finalize is called
	// the process manager's end; nil: none, or MPI was not initialised here
	manager *manager
	// leavesAlone says that a process which waits in MPI_Finalize may leave others without an answer: see Finalize.
	leavesAlone bool
	// together says that all processes wait for one another before they call MPI_Finalize: see Finalize.
	together bool
	reducers [tensor.NumDTypes][tensor.NumReduceOps]C.uintptr_t // made when first needed

	level    atomic.Int32 // the level of threads, in MPI's numbers
	underWay underWay
	lost     atomic.Pointer[error] // why MPI is not called any more
	kept     []*Lane               // lanes to whose memory MPI may still write; guarded by mu
}

var loaded struct {
	sync.Mutex
	library *Library
}

// InUse reports that a libmpi of this process has been initialised, by any caller. A libmpi that is only loaded says
// little, because some builds of PyTorch are linked with one.
func InUse() bool { return C.gv_in_use() != 0 }

// Load loads the libmpi of the given name or path. If name is empty, it takes the libmpi that is initialised in this
// process, otherwise one of the kind of the launcher that the environment shows (without such a launcher, any kind),
// preferably one that is already loaded. A process has one Library: later calls return it.
func Load(name string) (*Library, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.library != nil {
		return loaded.library, nil
	}
	l := &Library{
		functions: (*C.struct_gv_library)(C.calloc(1, C.sizeof_struct_gv_library)),
		call:      (*C.struct_gv_call)(C.calloc(1, C.sizeof_struct_gv_call)),
	}
	path, why := (*C.char)(C.calloc(1, C.GV_REASON_BYTES)), (*C.char)(C.calloc(1, C.GV_REASON_BYTES))
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(why))
	var cname *C.char
	if name != "" {
		cname = C.CString(name)
		defer C.free(unsafe.Pointer(cname))
	}
	if C.gv_load(l.functions, cname, path, why) != 0 {
		C.free(unsafe.Pointer(l.functions))
		C.free(unsafe.Pointer(l.call))
		if at := C.GoString(path); at != "" {
			return nil, fmt.Errorf("load MPI's library %s: %s", at, C.GoString(why))
		}
		return nil, fmt.Errorf("load MPI's library: %s", C.GoString(why))
	}
	l.path = C.GoString(path)
	text, err := l.text(C.GV_Get_library_version, 0)
	if err != nil {
		return nil, fmt.Errorf("load MPI's library %s: %w", l.path, err)
	}
	l.leavesAlone = leavesAlone(text, os.Getenv)
	l.version, _, _ = strings.Cut(text, "\n")
	l.version = strings.Join(strings.Fields(strings.TrimRight(l.version, ",")), " ")
	loaded.library = l
	return l, nil
}

// Version is what the library calls itself, such as "Open MPI v4.1.4", and its path.
func (l *Library) Version() string {
	version, _, _ := strings.Cut(l.version, ",")
	return fmt.Sprintf("%s (%s)", version, l.path)
}

// Err is nil while MPI may be called, and otherwise says why it may not.
func (l *Library) Err() error {
	if e := l.lost.Load(); e != nil {
		return *e
	}
	return nil
}

// lose ends all calls of MPI. Err then reports the first cause.
func (l *Library) lose(cause error) {
	err := fmt.Errorf("MPI cannot go on in this process after a failure, so the process has to end and start anew "+
		"(it was: %w)", cause)
	l.lost.CompareAndSwap(nil, &err)
}

var errBusy = fmt.Errorf("a call of MPI on another thread has lasted for more than %v: it waits for processes that "+
	"have not come, or MPI hangs", drainTime)

// acquire takes mu for a caller that may not wait for long, such as the driver, and reports whether it has. A goroutine
// that makes a communicator holds mu until all processes have come, which may be never. Once acquire has waited for
// drainTime, MPI is lost.
func (l *Library) acquire() bool {
	for deadline := time.Now().Add(drainTime); l.Err() == nil; time.Sleep(time.Millisecond) {
		if l.mu.TryLock() {
			return true
		}
		if time.Now().After(deadline) {
			l.lose(errBusy)
		}
	}
	return false
}

// turn takes mu for a thread of the program, which may wait for a communicator that another one makes, but only as long
// as MPI can be used. The error says why it cannot.
func (l *Library) turn() error {
	for ; l.Err() == nil; time.Sleep(time.Millisecond) {
		if l.mu.TryLock() {
			return nil
		}
	}
	return l.Err()
}

var errFinalized = errors.New("MPI has been finalized in this process, and cannot be initialized a second time: end " +
	"the process and start it anew")

var errEarly = errors.New("the program has finalized MPI while Horovod was in use: call hvd.shutdown() before")

// run makes the call that l.call holds. The caller holds mu.
func (l *Library) run(what uint32) {
	l.call.what = what
	l.underWay.begin(what)
	defer l.underWay.end()
	if l.thread != nil {
		l.thread <- struct{}{}
		<-l.returned
		return
	}
	C.gv_run(l.functions, l.call)
}

// do is run, and makes an error of the code that MPI returns.
func (l *Library) do(what uint32) error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.run(what); l.call.code != 0 {
		return l.explain(what, l.call.code)
	}
	return nil
}

var names = [...]string{C.GV_Init_thread: "Init_thread", C.GV_Query_thread: "Query_thread", C.GV_Comm_rank: "Comm_rank",
	C.GV_Comm_size: "Comm_size", C.GV_Comm_idup: "Comm_idup", C.GV_Comm_set_errhandler: "Comm_set_errhandler",
	C.GV_Comm_create_group:     "Comm_create_group",
	C.GV_Group_translate_ranks: "Group_translate_ranks", C.GV_Op_create: "Op_create", C.GV_Test: "Test",
	C.GV_Isend: "Isend", C.GV_Irecv: "Irecv",
	C.GV_Ibarrier: "Ibarrier", C.GV_Ibcast: "Ibcast", C.GV_Iallreduce: "Iallreduce", C.GV_Iallgatherv: "Iallgatherv",
	C.GV_Ialltoallv:      "Ialltoallv",
	C.GV_Ireduce_scatter: "Ireduce_scatter", C.GV_FUNCTION_COUNT: ""}

// explain is the error of a call that has returned code. The caller holds mu.
func (l *Library) explain(what uint32, code C.int) error {
	if code == C.GV_FINALIZED {
		return errEarly
	}
	reason, err := l.textLocked(C.GV_Error_string, code)
	if err != nil {
		reason = fmt.Sprintf("error %d", int(code))
	}
	return fmt.Errorf("MPI_%s: %s", names[what], reason)
}

// text returns the text with which a function of MPI fills a buffer.
func (l *Library) text(what uint32, code C.int) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.textLocked(what, code)
}

func (l *Library) textLocked(what uint32, code C.int) (string, error) {
	const room = 8192 // MPI_MAX_LIBRARY_VERSION_STRING, the largest of all
	buf := C.calloc(1, room)
	defer C.free(buf)
	l.call.out, l.call.peer = C.uintptr_t(uintptr(buf)), code
	l.run(what)
	if l.call.code != 0 {
		return "", fmt.Errorf("error %d", int(l.call.code))
	}
	return C.GoString((*C.char)(buf)), nil
}

// Init initialises MPI, unless the program has done so: then this package uses it as it is. single asks for
// MPI_THREAD_SINGLE, so that one thread makes all calls of MPI. Otherwise Init asks for MPI_THREAD_MULTIPLE, so that
// the program may call MPI itself meanwhile, and takes the level that the library has. It returns Err if MPI is lost.
func (l *Library) Init(single bool) error {
	if !l.acquire() {
		return l.Err()
	}
	defer l.mu.Unlock()
	if err := l.do(C.GV_Finalized); err != nil {
		return err
	}
	if l.call.result != 0 || l.finalized {
		return errFinalized
	}
	if err := l.do(C.GV_Initialized); err != nil {
		return err
	}
	if l.call.result != 0 {
		if l.ours {
			return nil
		}
		if err := l.do(C.GV_Query_thread); err != nil {
			return err
		}
		level := l.call.result
		l.level.Store(int32(level))
		if level < l.functions.thread_serialized {
			return errors.New("the program has initialized MPI for one thread only, but gorovod calls it from " +
				"several: initialize it with MPI_THREAD_SERIALIZED at least (mpi4py does by itself, unless mpi4py.rc " +
				"says otherwise), or after hvd.init()")
		}
		return nil
	}
	manager := connectedManager()
	l.call.peer = l.functions.thread_multiple
	if single {
		l.call.peer = l.functions.thread_single
		l.thread, l.returned = make(chan struct{}), make(chan struct{})
		guard.Go("the thread that calls MPI", l.lose, l.serve)
	}
	if err := l.do(C.GV_Init_thread); err != nil {
		return err
	}
	level := l.call.result
	l.level.Store(int32(level))
	l.ours, l.manager = true, manager
	C.gv_signals_on_alternate_stack()
	if !single && level < l.functions.thread_serialized {
		// The library does not allow several threads, even one at a time. It is too late to let another thread
		// initialise it.
		err := fmt.Errorf("%s has no support for threads: set HOROVOD_MPI_THREADS_DISABLE=1, with which one thread "+
			"makes all calls", l.version)
		l.lose(err)
		return err
	}
	return nil
}

// serve is the one thread that calls MPI, for as long as the process lives.
func (l *Library) serve() {
	runtime.LockOSThread()
	for range l.thread {
		C.gv_run(l.functions, l.call)
		l.returned <- struct{}{}
	}
}

// ThreadsSupported reports that MPI was initialised with MPI_THREAD_MULTIPLE: the program may call it
// on any thread at any time.
func (l *Library) ThreadsSupported() bool {
	return l.level.Load() == int32(l.functions.thread_multiple)
}

// World is MPI_COMM_WORLD.
func (l *Library) World() uintptr { return uintptr(l.functions.world) }

// HandleAt returns the i-th handle in an array of the program's MPI_Comm.
func (l *Library) HandleAt(array unsafe.Pointer, i int) uintptr {
	return uintptr(C.gv_handle_at(l.functions, array, C.int(i)))
}

// HandleOf returns the handle in an argument of type MPI_Comm that was passed as a pointer.
func (l *Library) HandleOf(argument uintptr) uintptr {
	return uintptr(C.gv_handle_of(l.functions, C.uintptr_t(argument)))
}

// pollPause is how long await sleeps between two tests: await is for the start, not for operations.
const pollPause = 100 * time.Microsecond

// await tests a request until it or ctx has ended. If ctx ends first, MPI is lost, because nothing can cancel the
// request.
func (l *Library) await(ctx context.Context, request C.uintptr_t) error {
	for {
		l.mu.Lock()
		l.call.request = request
		err := l.do(C.GV_Test)
		ended := l.call.result != 0
		request = l.call.request
		l.mu.Unlock()
		switch {
		case err != nil:
			l.lose(err)
			return err
		case ended:
			return nil
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("not all processes have come: %w. If they run on several hosts, MPI may be trying "+
				"interfaces that lead nowhere, such as bridges with one address on all hosts: name those to use, "+
				"with horovodrun --network-interfaces or mpirun -mca btl_tcp_if_include", context.Cause(ctx))
			l.lose(err)
			return err
		case <-time.After(pollPause):
		}
	}
}

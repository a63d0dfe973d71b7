//go:build cgo && linux

package nccl

/*
#include "calls.h"
*/
import "C"

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// Comm is a communicator of one device of this process.
type Comm struct {
	library *Library
	context *cuda.Context
	place   C.struct_gv_place

	// mu is held during calls of C on the communicator. Abort waits for mu up to abortGrace, because a call may hang
	// until Abort.
	mu   sync.Mutex
	over atomic.Bool // destroyed or aborted, or about to be
	// slot holds the ncclComm_t. It is C's memory, and is never freed, because NCCL may write to it in the background.
	slot *C.uintptr_t
}

// C reads steps and progress in place, so the layouts must agree. This compares their sizes.
var (
	_ [unsafe.Sizeof(Step{})]byte     = [C.sizeof_struct_gv_step]byte{}
	_ [unsafe.Sizeof(progress{})]byte = [C.sizeof_struct_gv_progress]byte{}
)

// abortGrace is how long Abort waits for a call that is under way. Calls return at once unless something is wrong.
const abortGrace = 100 * time.Millisecond

// Context returns the context of the communicator's device.
func (c *Comm) Context() *cuda.Context { return c.context }

// Ready reports whether NCCL has done its work in the background: to make the communicator, to issue operations to a
// stream, to finalize. The error says what has failed since, also while operations run on the device.
func (c *Comm) Ready() (bool, error) {
	if err := c.enter(); err != nil {
		return false, err
	}
	defer c.mu.Unlock()
	if c.handle() == 0 {
		return false, nil
	}
	var state C.int
	if code := C.gv_nccl_state(&c.place, c.handle(), &state); code != 0 {
		return false, c.fail("ncclCommGetAsyncError", code)
	}
	switch Result(state) {
	case Success:
		return true, nil
	case InProgress:
		return false, nil
	}
	return false, c.fail("an operation of NCCL", state)
}

// Advance puts a program into its stream, as far as NCCL allows, and reports whether the whole program is there. If
// not, the caller calls Advance again, and until then nobody else may use the communicator or the stream.
func (c *Comm) Advance(p *Program) (issued bool, err error) {
	if err := c.enter(); err != nil {
		return false, err
	}
	defer c.mu.Unlock()
	code := C.gv_nccl_run(&c.place, c.handle(), C.uintptr_t(p.Stream),
		(*C.struct_gv_step)(unsafe.Pointer(unsafe.SliceData(p.Steps))), C.int(len(p.Steps)),
		(*C.struct_gv_progress)(unsafe.Pointer(&p.progress)))
	if code != 0 {
		return false, c.fail(p.failed(), code)
	}
	return int(p.progress.next) == len(p.Steps) && p.progress.pending == 0, nil
}

// NewScaledSum makes an operation that multiplies each member's elements by that member's factor, and adds them. factor
// has the bytes of an element of type t.
func (c *Comm) NewScaledSum(t DType, factor []byte) (ReduceOp, error) {
	if len(factor) != t.Size() {
		return 0, fmt.Errorf("a factor of %d bytes for elements of %d", len(factor), t.Size())
	}
	if err := c.enter(); err != nil {
		return 0, err
	}
	defer c.mu.Unlock()
	var op C.int
	code := C.gv_nccl_scale_create(&c.place, c.handle(), unsafe.Pointer(&factor[0]), C.int(t), &op)
	if code != 0 {
		return 0, c.fail("ncclRedOpCreatePreMulSum", code)
	}
	return ReduceOp(op), nil
}

// FreeScaledSum frees an operation of NewScaledSum. Steps that have been issued can still use it.
func (c *Comm) FreeScaledSum(op ReduceOp) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if code := C.gv_nccl_scale_destroy(&c.place, c.handle(), C.int(op)); code != 0 {
		return c.fail("ncclRedOpDestroy", code)
	}
	return nil
}

// Split begins to make a communicator of those members that call with the same color, in the order of their keys. All
// members call. A member that takes no part gives the color -1, and gets nil.
func (c *Comm) Split(color, key int) (*Comm, error) {
	if !c.library.CanSplit() {
		return nil, fmt.Errorf("NCCL %s has no ncclCommSplit", VersionText(c.library.version))
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	made := c.library.newComm(c.context)
	code := C.gv_nccl_split(&c.place, c.handle(), C.int(color), C.int(key), made.slot)
	if color < 0 && (code == C.GV_NCCL_SUCCESS || code == C.GV_NCCL_IN_PROGRESS) {
		return nil, nil
	}
	return made.made("ncclCommSplit", code)
}

// Shrink begins to make a communicator of all members except those in without, which need not be alive. Only the others
// call. With abort, Shrink first ends the communicator's operations.
func (c *Comm) Shrink(without []int, abort bool) (*Comm, error) {
	if !c.library.CanShrink() {
		return nil, fmt.Errorf("NCCL %s has no ncclCommShrink", VersionText(c.library.version))
	}
	if len(without) == 0 {
		return nil, fmt.Errorf("a communicator does not shrink by nobody")
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	ranks, ends := make([]C.int, len(without)), C.int(0)
	for i, r := range without {
		ranks[i] = C.int(r)
	}
	if abort {
		ends = 1
	}
	made := c.library.newComm(c.context)
	code := C.gv_nccl_shrink(&c.place, c.handle(), &ranks[0], C.int(len(ranks)), ends, made.slot)
	return made.made("ncclCommShrink", code)
}

// Finalize begins to end the communicator in order. Once Ready reports that all operations are done, the caller calls
// Destroy.
func (c *Comm) Finalize() error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if code := C.gv_nccl_end(&c.place, c.handle(), C.GV_FINALIZE); code != 0 && code != C.GV_NCCL_IN_PROGRESS {
		return c.fail("ncclCommFinalize", code)
	}
	return nil
}

// Destroy frees the communicator after Finalize is done.
func (c *Comm) Destroy() error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	c.over.Store(true)
	return c.end("ncclCommDestroy", C.GV_DESTROY)
}

// Abort ends the communicator at once, and frees it. Any goroutine may call it, also while another call of the
// communicator hangs. Abort ends that call, too, and blocks until the device is rid of the communicator's operations.
// Later calls return ErrAborted.
func (c *Comm) Abort() error {
	if c.over.Swap(true) {
		return nil
	}
	for began := time.Now(); time.Since(began) < abortGrace; time.Sleep(time.Millisecond) {
		if c.mu.TryLock() {
			defer c.mu.Unlock()
			break
		}
	}
	return c.end("ncclCommAbort", C.GV_ABORT)
}

func (c *Comm) end(call string, how C.int) error {
	handle := c.handle()
	if handle == 0 {
		return nil
	}
	if code := C.gv_nccl_end(&c.place, handle, how); code != 0 && code != C.GV_NCCL_IN_PROGRESS {
		return c.library.fail(c.context, call, code, 0)
	}
	return nil
}

// enter locks mu for a call.
func (c *Comm) enter() error {
	c.mu.Lock()
	if c.over.Load() {
		c.mu.Unlock()
		return ErrAborted
	}
	return nil
}

func (c *Comm) handle() C.uintptr_t {
	return C.uintptr_t(atomic.LoadUintptr((*uintptr)(unsafe.Pointer(c.slot))))
}

// made makes the results of a call that begins to make a communicator.
func (c *Comm) made(call string, code C.int) (*Comm, error) {
	if code != C.GV_NCCL_SUCCESS && code != C.GV_NCCL_IN_PROGRESS {
		err := c.library.fail(c.context, call, code, 0)
		_ = c.Abort() // err says what has happened
		return nil, err
	}
	return c, nil
}

// fail makes an error of a code that a call on the communicator returned.
func (c *Comm) fail(call string, code C.int) error {
	if c.over.Load() {
		return ErrAborted // it was aborted meanwhile, and the handle is no longer valid
	}
	return c.library.fail(c.context, call, code, c.handle())
}

// fail makes an error of a code that is not success; comm is 0 if there is none.
func (l *Library) fail(at *cuda.Context, call string, code C.int, comm C.uintptr_t) error {
	if code >= C.GV_CUDA_CODES {
		return at.Driver().Failure(call, int(code-C.GV_CUDA_CODES))
	}
	e := &Error{Call: call, Code: Result(code), Text: cmp.Or(C.GoString(C.gv_nccl_text(l.f, code)), "an error")}
	if last := C.gv_nccl_last_error(l.f, comm); last != nil {
		e.Last = strings.TrimSpace(C.GoString(last))
	}
	return e
}

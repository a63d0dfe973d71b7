package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// Ranks copy one another's memory by process_vm_readv and process_vm_writev: one copy, where staging buffers take two.
// Each rank has a token in its own memory. A rank reads the tokens of the others, to find out whether the kernel lets
// it copy. A security policy may forbid that (ptrace_scope, seccomp). In another name space the process id means
// another process.
//
// If the network is aborted, a rank may give up an operation and use its memory for something else before the others
// know. Reading that memory does no harm, but writing to it does. So:
//
//	writer  says to whose memory it writes, then looks whether that rank is still open
//	closer  says that it is closed, then waits for those that write to its memory
//
// At least one of the two sees the other.

const (
	tokenBytes = 16
	// fenceLimit is how long Close waits for a rank that writes to this one's memory. A
	// block takes less than a millisecond, but a process can be stopped at any time.
	fenceLimit = time.Second
	// killLimit is how long Close waits for such a rank altogether, the end of its process included.
	killLimit = 10 * time.Second
)

// copyState is the part of a rank's state that the others read, on cache lines of its own.
type copyState struct {
	token   [tokenBytes]byte
	at      uint64        // the address of its own copy of the token; 0: others must not copy from this rank
	closed  atomic.Uint32 // 1: nobody may write to this rank's memory any more
	writing atomic.Uint32 // 1 + the place of the rank to whose memory this one writes; 0: none
	_       [96]byte
}

const copyStateBytes = int(unsafe.Sizeof(copyState{}))

// copyToken is a rank's own copy of its token.
type copyToken [tokenBytes]byte

// openToOthers tells the others the address of this rank's token.
func (n *Network) openToOthers(h *header) {
	if !n.worthCopying() {
		return
	}
	if n.cfg.HugePages {
		n.hugeSize = hugePageSize()
	}
	n.token = new(copyToken)
	rand.Read(n.token[:])
	s := h.copyState(n.cfg.Rank)
	s.token, s.at = *n.token, uint64(uintptr(unsafe.Pointer(n.token)))
	// If only ancestors may look into a process (ptrace_scope 1), this lets the launcher's descendants do so. On other
	// systems it returns an error.
	unix.Prctl(unix.PR_SET_PTRACER, uintptr(os.Getppid()), 0, 0, 0)
	runtime.KeepAlive(h)
}

// worthCopying reports that ranks should copy one another's memory if they can. If more than two ranks share a core,
// copying gains nothing: staged data is still in the cache when the next rank runs.
func (n *Network) worthCopying() bool {
	return !n.cfg.Staged && (n.cfg.Cores == 0 || n.cfg.Size <= 2*n.cfg.Cores)
}

// canCopy reports that this rank can read the memory of the rank at a place.
func (n *Network) canCopy(place int) bool {
	defer runtime.KeepAlive(n.head)
	s := n.head.copyState(place)
	if s.at == 0 {
		return false
	}
	own := []transport.Span{{Addr: uintptr(unsafe.Pointer(&n.seen)), Bytes: tokenBytes}}
	got, _ := copyVM(unix.SYS_PROCESS_VM_READV, n.watch.pids[place], own,
		[]transport.Span{{Addr: uintptr(s.at), Bytes: tokenBytes}})
	return got == tokenBytes && n.seen == s.token
}

// CanCopy reports that this rank can copy the memory of all others of the host, and should.
func (n *Network) CanCopy() bool {
	if !n.worthCopying() {
		return false
	}
	for r := range n.cfg.Size {
		if r != n.cfg.Rank && !n.canCopy(r) {
			return false
		}
	}
	return true
}

// copyVM calls process_vm_readv or process_vm_writev; a Span is an iovec. No span may be on a goroutine's stack, which
// can move. The call is a RawSyscall: it takes some 50 µs, after which Go's scheduler would wake a thread for nothing.
func copyVM(call uintptr, pid int, own, theirs []transport.Span) (int, unix.Errno) {
	n, _, err := unix.RawSyscall6(call, uintptr(pid), uintptr(unsafe.Pointer(&own[0])), uintptr(len(own)),
		uintptr(unsafe.Pointer(&theirs[0])), uintptr(len(theirs)), 0)
	return int(n), err
}

// CanCopy implements transport.SingleCopy. It reads the tokens again each time, because a process may have given up its
// rights, or run another program now.
func (s *staging) CanCopy() bool {
	for _, p := range s.others {
		s.copying = s.copying && s.net.canCopy(p)
	}
	return s.copying
}

// Copyable implements transport.SingleCopy. Memory of devices, such as that of a GPU's driver, is not copyable.
func (s *staging) Copyable(own []transport.Span) bool {
	if !s.copying {
		return false
	}
	for len(own) > 0 {
		n := min(len(own), maxProbes)
		for i := range n {
			s.probes[i] = transport.Span{Addr: own[i].Addr, Bytes: 1}
		}
		into := [1]transport.Span{{Addr: uintptr(unsafe.Pointer(&s.probed)), Bytes: uintptr(n)}}
		got, _ := copyVM(unix.SYS_PROCESS_VM_READV, os.Getpid(), into[:], s.probes[:n])
		if got != n {
			return false
		}
		own = own[n:]
	}
	return true
}

const maxProbes = 64

// Crowded implements transport.SingleCopy.
func (s *staging) Crowded() bool { return s.crowded }

// Expose implements transport.SingleCopy.
func (s *staging) Expose(own []transport.Span) { s.huge.use(own) }

// Pull implements transport.SingleCopy.
func (s *staging) Pull(m int, own, theirs []transport.Span) bool {
	return s.copyVM(unix.SYS_PROCESS_VM_READV, "read", m, own, theirs)
}

// Push implements transport.SingleCopy.
func (s *staging) Push(m int, theirs, own []transport.Span) bool {
	defer runtime.KeepAlive(s.head)
	writing := &s.head.copyState(s.places[s.me]).writing
	writing.Store(uint32(s.places[m]) + 1)
	defer writing.Store(0)
	if s.head.copyState(s.places[m]).closed.Load() != 0 {
		return false
	}
	return s.copyVM(unix.SYS_PROCESS_VM_WRITEV, "write", m, own, theirs)
}

func (s *staging) copyVM(call uintptr, what string, m int, own, theirs []transport.Span) bool {
	place := s.places[m]
	pid := s.net.watch.pids[place]
	want := 0
	for _, p := range own {
		want += int(p.Bytes)
	}
	if s.net.watch.gone(place) {
		return false // another process may have its id already
	}
	got, err := copyVM(call, pid, own, theirs)
	switch {
	case got == want:
		return true
	case err == unix.ESRCH, s.net.Err() != nil, s.head.copyState(place).closed.Load() != 0:
		return false // another error gives the reason better
	case err == 0:
		err = unix.EFAULT
	}
	why := fmt.Sprintf("%v; GOROVOD_SINGLE_COPY=0 does without", err)
	switch {
	case err == unix.EFAULT && !s.net.canCopy(place):
		why = "it has become another program"
	case err == unix.EFAULT:
		why = fmt.Sprintf("%v: its tensor is where one cannot %s, or was freed before the operation ended; if it is "+
			"in a device's memory, GOROVOD_SINGLE_COPY=0 does without", err, what)
	}
	s.abort(fmt.Errorf("rank %d cannot %s the memory of rank %d (process %d) any more: %s",
		s.net.cfg.world(s.places[s.me]), what, s.net.cfg.world(place), pid, why))
	return false
}

// fence returns when no other rank writes to this one's memory, and none will. It kills a rank that was stopped in the
// middle of a copy. That happens only after the network has failed, because otherwise no operation ends before the
// ranks that write to its memory are done.
func (n *Network) fence() error {
	if n.token == nil || n.watch.pids == nil {
		return nil
	}
	defer runtime.KeepAlive(n.head)
	n.head.copyState(n.cfg.Rank).closed.Store(1)
	var errs []error
	for r := range n.cfg.Size {
		if r != n.cfg.Rank {
			errs = append(errs, n.awaitWriter(r))
		}
	}
	runtime.KeepAlive(n.token)
	return errors.Join(errs...)
}

func (n *Network) awaitWriter(place int) error {
	writing, own := &n.head.copyState(place).writing, uint32(n.cfg.Rank)+1
	began, killed := time.Now(), false
	for nap := 10 * time.Microsecond; writing.Load() == own && !n.watch.gone(place); nap = min(2*nap,
		time.Millisecond) {
		switch waited := time.Since(began); {
		case waited > fenceLimit && !killed:
			killed = true
			n.watch.kill(place)
		case waited > killLimit:
			return fmt.Errorf("rank %d (process %d) has been writing to the memory of rank %d for %v, and "+
				"cannot be killed", n.cfg.world(place), n.watch.pids[place], n.cfg.world(n.cfg.Rank), waited)
		}
		time.Sleep(nap)
	}
	if killed {
		return fmt.Errorf("rank %d (process %d) was stopped while it wrote to the memory of rank %d, and has "+
			"been killed", n.cfg.world(place), n.watch.pids[place], n.cfg.world(n.cfg.Rank))
	}
	return nil
}

var _ transport.SingleCopy = (*staging)(nil)

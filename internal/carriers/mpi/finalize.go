//go:build cgo && linux

package mpi

/*
#include "libmpi.h"
*/
import "C"

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// finalizeLimit is how long MPI_Finalize may last once all processes have come to it: it needs a few messages, and
// seconds only where many processes share a core.
const finalizeLimit = 20 * time.Second

// Finalize ends MPI if Init has begun it, and nothing has failed since. It waits for the other
// processes. No lane may be open. The error says that MPI_Finalize hangs. Then the process manager has been told that
// this process ends in order, and the process has to end.
//
// MPICH 4.0 may hang over UCX and TCP:
//
//  1. A process in MPI_Finalize asks each peer for an acknowledgement, and waits for it.
//  2. UCX acknowledges while a process is in any call of MPI.
//  3. A process that has all acknowledgements waits at the process manager's barrier, and answers nobody any more.
//
// So a process must not be in another call of MPI while a peer is in MPI_Finalize: it would send the peer on to step 3,
// and get no acknowledgement of its own. The processes therefore meet at the process manager's barrier first.
func (l *Library) Finalize() error { return l.finalize(finalizeLimit) }

func (l *Library) finalize(limit time.Duration) error {
	if !l.acquire() {
		return nil
	}
	defer l.mu.Unlock()
	if !l.ours || l.finalized || l.Err() != nil {
		return nil
	}
	l.finalized = true
	if err := l.do(C.GV_Finalized); err != nil || l.call.result != 0 || !l.together || !l.manager.barrier() {
		l.run(C.GV_Finalize) // lasts until the last process has come; nothing if the program has called it
	} else if err := l.runFinalize(limit); err != nil {
		return err
	}
	if l.atExit == nil {
		l.manager.goodbye()
	}
	return nil
}

// runFinalize calls MPI_Finalize, and takes the thread out of it if it does not return within limit.
func (l *Library) runFinalize(limit time.Duration) error {
	returned := make(chan struct{})
	guard.Go("MPI_Finalize", l.lose, func() {
		defer close(returned)
		l.run(C.GV_Finalize)
	})
	select {
	case <-returned:
		return nil
	case <-time.After(limit):
	}
	err := fmt.Errorf("MPI_Finalize has not returned for %v, although all processes have called it: MPI hangs (%s), "+
		"and this process gives it up", limit, l.version)
	l.lose(err)
	C.gv_halt_finalizing() // it may wait for the process manager's next word, which is not for it
	l.manager.goodbye()
	return err
}

// agree learns whether all processes will call Finalize, and can meet before. All processes of MPI_COMM_WORLD call it,
// with a duplicate of that.
func (l *Library) agree(ctx context.Context, world *Communicator) error {
	if !l.leavesAlone {
		return nil
	}
	mine := []byte{0}
	if l.ours && l.manager != nil {
		mine[0] = 1
	}
	all, err := world.Allgather(ctx, mine)
	if err != nil {
		return err
	}
	together := true
	for _, theirs := range all {
		together = together && string(theirs) == "\x01"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.together = together
	return nil
}

// leavesAlone reports, by the text of its version, that MPI is MPICH over UCX, and speaks version 1 of the PMI wire
// protocol with its process manager.
func leavesAlone(version string, getenv func(string) string) bool {
	_, text, _ := strings.Cut(version, "MPICH Device:")
	device, _, _ := strings.Cut(text, "\n")
	if !strings.Contains(device, "ucx") || strings.Contains(text, "pmi=pmi2") || strings.Contains(text, "pmix") {
		return false
	}
	for _, name := range []string{"MPIR_CVAR_PMI_VERSION", "PMI_VERSION"} {
		if v := getenv(name); v != "" && v != "1" {
			return false
		}
	}
	return true
}

// FinalizeAtExit lets Finalize be called when the process calls C's exit; hung hears its error, and the process ends
// with the code that it has given exit. A program whose main is Go's does not call exit, and has to call Finalize
// itself.
func (l *Library) FinalizeAtExit(hung func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.atExit == nil {
		C.gv_at_exit()
	}
	l.atExit = hung
}

//export goMPIAtExit
func goMPIAtExit() {
	loaded.Lock()
	l := loaded.library
	loaded.Unlock()
	if l.mu.TryLock() { // else the process ends while a thread is in MPI
		hung := l.atExit
		l.mu.Unlock()
		if err := l.Finalize(); err != nil {
			hung(err)
			C.gv_exit_now() // the libraries' handlers would wait for the thread that was in MPI_Finalize
		}
	}
}

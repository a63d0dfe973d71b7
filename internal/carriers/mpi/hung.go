//go:build cgo && linux

package mpi

/*
#include "libmpi.h"
*/
import "C"

import (
	"context"
	"sync/atomic"
	"time"
)

// underWay tells other goroutines which call of MPI is running: its lowest 8 bits say which call, and the upper bits
// count the calls; 0 while none is running. It leaves out calls that by their nature wait for other processes.
type underWay struct {
	call  atomic.Uint64
	count uint64 // only the caller of MPI uses it
}

func (u *underWay) begin(what uint32) {
	switch what {
	case C.GV_Init_thread, C.GV_Comm_create_group, C.GV_Finalize:
		return
	}
	u.count++
	u.call.Store(u.count<<8 | uint64(what))
}

func (u *underWay) end() { u.call.Store(0) }

// hungLook is the time between two looks of Hung.
const hungLook = 100 * time.Millisecond

// Hung is for a goroutine that has heard of an abort. It returns the name of a call of MPI that has lasted for limit,
// although such calls should return at once. It returns "" when the driver has given up MPI, when no call has run for
// limit, or when ctx ends.
//
// Why this check exists: Open MPI 4.1 may wait for a lock that it holds itself when a connection over TCP breaks while
// it sends. The thread that was in MPI then never comes back.
func (c *Communicator) Hung(ctx context.Context, limit time.Duration) (call string) {
	l := c.library
	tick := time.NewTicker(hungLook)
	defer tick.Stop()
	last, since := uint64(0), time.Now()
	for now := l.underWay.call.Load(); now != 0 || l.Err() == nil; now = l.underWay.call.Load() {
		if now != last {
			last, since = now, time.Now()
		} else if time.Since(since) >= limit {
			return nameOf(now)
		}
		select {
		case <-ctx.Done():
			return ""
		case <-tick.C:
		}
	}
	return ""
}

// nameOf is the name of a call in an underWay, "" for none.
func nameOf(call uint64) string {
	if call == 0 {
		return ""
	}
	if what := int(call & 0xff); what < len(names) && names[what] != "" {
		return "MPI_" + names[what]
	}
	return "a call of MPI"
}

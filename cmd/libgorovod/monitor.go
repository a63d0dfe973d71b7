package main

import (
	"os"
	"runtime"
	"sync"
)

// spareProcs are Go's processors (GOMAXPROCS) beyond the usable cores. A thread that has gone back to C keeps
// one until the monitor takes it away, which is in no hurry: so there are some for other threads.
const spareProcs = 4

var procs sync.Mutex // held while GOMAXPROCS stands for the usable cores, or changes

// withUsableCores calls f while GOMAXPROCS is the number of cores that this process may use.
func withUsableCores(f func()) {
	procs.Lock()
	defer procs.Unlock()
	runtime.GOMAXPROCS(usableCores())
	defer func() { runtime.GOMAXPROCS(usableCores() + spareProcs) }()
	f()
}

// atStart is GOMAXPROCS as the user, or else the machine, has set it.
var atStart = runtime.GOMAXPROCS(0)

// usableCores may change with the process's affinity, unless the user has said how many there are.
func usableCores() int {
	if os.Getenv("GOMAXPROCS") != "" {
		return atStart
	}
	runtime.SetDefaultGOMAXPROCS()
	return runtime.GOMAXPROCS(0)
}

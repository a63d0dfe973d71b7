package main

import (
	"os"
	"runtime"
	"sync"
)

// spareProcs is the number of Go's processors (GOMAXPROCS) beyond the usable cores. A thread that has gone back to C
// keeps one until Go's monitor takes it away, which may take a while. The spare ones are for other threads meanwhile.
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

// atStart is GOMAXPROCS as the user has set it, or otherwise the machine.
var atStart = runtime.GOMAXPROCS(0)

// usableCores returns the number of cores that the user has given or, otherwise, that the machine and the process's
// affinity allow now.
func usableCores() int {
	if os.Getenv("GOMAXPROCS") != "" {
		return atStart
	}
	runtime.SetDefaultGOMAXPROCS()
	return runtime.GOMAXPROCS(0)
}

package main

/*
#include <stdint.h>
*/
import "C"

import "github.com/gorovod/gorovod/internal/joining/process"

// The questions about MPI and Gloo that Horovod answers.
const (
	mpiBuilt = iota
	mpiEnabled
	mpiThreads
	glooEnabled
)

//export goMPI
func goMPI(which C.int) C.int {
	yes := false
	switch which {
	case mpiBuilt:
		yes = process.MPIBuilt(getenv)
	case mpiEnabled:
		yes = process.MPIEnabled()
	case mpiThreads:
		yes = process.MPIThreadsSupported()
	case glooEnabled:
		yes = process.GlooEnabled()
	}
	if yes {
		return 1
	}
	return 0
}

//export goCommProcessSet
func goCommProcessSet(comm C.uintptr_t) C.int {
	if id, ok := process.MPISet(uintptr(comm)); ok {
		return C.int(id)
	}
	return -1
}

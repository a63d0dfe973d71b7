package process

import (
	"log/slog"
	"slices"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
)

// EndsByExit: the process ends by C's exit, as Python does. Then exit finalizes MPI, and Init may follow Shutdown.
// Otherwise Shutdown finalizes MPI. Set it before Init.
var EndsByExit bool

// MPIBuilt reports whether MPI can be used: it finds and loads a libmpi, without initialising it.
func MPIBuilt(lookup func(string) (string, bool)) bool {
	name, _ := lookup("GOROVOD_MPI_LIBRARY")
	_, err := mpi.Load(name)
	return err == nil
}

// MPIEnabled reports whether the ranks have met over MPI, or MPI carries the data.
func MPIEnabled() bool {
	w := current.Load()
	return w != nil && (w.Config.Controller == config.MPI || w.Config.CPUOperations == config.MPI)
}

// GlooEnabled reports whether the ranks have met over Gloo, or Gloo carries the data; true without a world. Gloo stands
// for the native transports.
func GlooEnabled() bool {
	w := current.Load()
	return w == nil || w.Config.Controller == config.Gloo || w.Config.CPUOperations == config.Gloo
}

// MPIThreadsSupported reports whether MPI is in use and the program may call it on any thread.
func MPIThreadsSupported() bool {
	if !MPIEnabled() {
		return false
	}
	l, err := mpi.Load("")
	return err == nil && l.ThreadsSupported()
}

// MPISet returns the process set with the processes of one of the program's communicators. argument is an MPI_Comm,
// passed as if it were a pointer.
func MPISet(argument uintptr) (id int, ok bool) {
	mu.Lock()
	defer mu.Unlock()
	w := current.Load()
	if w == nil || overMPI == nil {
		return 0, false
	}
	l, err := mpi.Load("")
	if err != nil {
		return 0, false
	}
	ranks, err := overMPI.Ranks(l.HandleOf(argument))
	if err != nil {
		return 0, false
	}
	for i, r := range ranks {
		ranks[i] = w.RankOfMPI(r)
	}
	slices.Sort(ranks)
	for _, s := range w.Engine.Sets() {
		if slices.Equal(s.Ranks, ranks) {
			return s.ID, true
		}
	}
	return 0, false
}

// withMPI returns an environment in which the ranks meet over MPI.
func withMPI(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name == "HOROVOD_CONTROLLER" {
			return string(config.MPI), true
		}
		return lookup(name)
	}
}

// stopMPI ends the use of MPI after the world has been left.
func stopMPI(processes *mpi.Communicator, log *slog.Logger) {
	processes.Free()
	if l, err := mpi.Load(""); err == nil && !EndsByExit {
		if err := l.Finalize(); err != nil {
			log.Error(err.Error())
		}
	}
}

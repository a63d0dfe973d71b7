// Package mpi lets a libmpi carry the data of collectives, in place of gorovod's
// own transports. The library is loaded when the program runs, whichever is there: Open
// MPI, MPICH and its kin, or one with the standard binary interface of MPI 5. Nothing of
// MPI is needed to build this package; without cgo, or elsewhere than on Linux, it is
// empty but for an error that says so.
//
// What is executed next is still agreed on the boards of the engine's own network, which
// also tells of deaths and aborts. Only the data moves by MPI, in nonblocking calls
// that Lane's operations test when the engine polls them, so that an abort is
// seen while an operation waits for a process that has died.
//
// All calls of MPI in a process are made one at a time (Library.lock). None is
// made any more after a failure: MPI cannot take back what it has begun, so the process has to end.
package mpi

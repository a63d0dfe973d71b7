// Package mpi lets a libmpi carry the data of collectives, in place of gorovod's own transports. It loads the library
// when the program runs: Open MPI, MPICH and its kin, or one with the standard binary interface of MPI 5. Building this
// package needs no MPI. Without cgo, and on other systems than Linux, its functions only return an error that says so.
//
// The ranks still agree on the next operation by the boards of the engine's own network, which also carries the news of
// deaths and aborts. MPI moves only the data, by nonblocking calls. Lane's operations test these calls when the engine
// polls them, so the engine sees an abort while an operation waits for a dead process.
//
// A process makes one call of MPI at a time (Library.lock). After a failure it makes no more calls: MPI cannot cancel
// what it has begun, so the process has to end.
package mpi

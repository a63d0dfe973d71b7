// Package pmix hands values from one rank of a job to the others through the PMIx server that has started them: a
// daemon of Open MPI's mpirun, or of Slurm's srun --mpi=pmix. It loads libpmix at run time and calls it through
// the binary interface that its versions share; nothing of it is needed to build.
//
// A process has one client of PMIx. MPI uses it, too, and the library counts its users. So Open takes the library that
// MPI uses already, or would use, as far as it can tell: two copies in one process disturb each other.
//
// A client says goodbye (PMIx_Finalize) once. A server takes an end without a goodbye for a crash.
//
//	PMIx before 5   after the goodbye it answers no more, so MPI could not be initialised: the client
//	                says goodbye as late as possible, when the process calls C's exit
//	PMIx 5 or later the client must say goodbye before MPI is initialised, and may do so early
package pmix

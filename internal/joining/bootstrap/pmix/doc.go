// Package pmix hands values from one rank of a job to the others through the PMIx server that has started them: a
// daemon of Open MPI's mpirun, or of Slurm's srun --mpi=pmix. It loads libpmix at run time, and calls it through the
// binary interface that its versions share. Building this package does not need libpmix.
//
// A process has one client of PMIx. MPI uses it, too, and the library counts its users. Two copies of the library in
// one process disturb each other. So Open takes the library that MPI uses already or would use, as far as Open can
// tell.
//
// A client calls PMIx_Finalize once. If a process ends without it, the server takes this for a crash.
//
//	PMIx before 5    the server answers no more after PMIx_Finalize, so MPI could not be initialised: the client calls
//	                 it as late as possible, when the process calls C's exit
//	PMIx 5 or later  the client must call PMIx_Finalize before MPI is initialised, and may do so early
package pmix

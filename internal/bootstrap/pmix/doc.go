// Package pmix hands values from one rank of a job to the others through the PMIx server that has started them: a
// daemon of Open MPI's mpirun, or of Slurm's srun --mpi=pmix. It loads libpmix at run time and calls it through
// the binary interface that its versions share; nothing of it is needed to build.
//
// There is one client of PMIx in a process, which MPI is, too: the library counts. A server takes a process that ends without a last word
// for a crash. Those before version 5 have no more answers for a rank that has said it, so that MPI could not be initialised after that: with
// them the last word is said as late as can be, when the process calls C's exit. Later ones want the opposite: the last word has to
// be said before MPI is initialised, and may be.
//
// Open makes sure that the library is the one that MPI would use, as far as that can be told, or that MPI uses already: two
// in one process disturb each other.
package pmix

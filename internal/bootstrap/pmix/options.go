package pmix

// Options are what a client goes by.
type Options struct {
	// Namespace, Rank and Size are this process's place in its job, as its environment has it: where the server
	// has another idea, PMIx is of no use.
	Namespace  string
	Rank, Size int
	// LaunchersVersion says that MPI in this job uses the library that the launcher uses, so that no other version will
	// do.
	LaunchersVersion bool
	// AtExit says that the process ends by C's exit, so that the last word can be left to that where it has to be. A
	// program whose main is Go's does not call it.
	AtExit bool
}

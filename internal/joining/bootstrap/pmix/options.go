package pmix

// Options describe the job of a client.
type Options struct {
	// Namespace, Rank and Size are this process's place in its job, as its environment says. If the server says
	// otherwise, Open fails.
	Namespace  string
	Rank, Size int
	// LaunchersVersion says that MPI in this job uses the launcher's library. Then Open takes no other version.
	LaunchersVersion bool
	// AtExit says that the process ends by C's exit, so that exit can call PMIx_Finalize if that must be late. A
	// program whose main is Go's does not call exit.
	AtExit bool
}

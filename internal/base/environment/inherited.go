package environment

import "github.com/gorovod/gorovod/internal/base/lazyregexp"

// placement matches the variables by which a launcher tells a process its place, and by which launcher and process find
// each other.
var placement = lazyregexp.New(
	`^(OMPI_COMM_WORLD_.*|OMPI_(APP_CTX_NUM_PROCS|FIRST_RANKS|NUM_APP_CTX|UNIVERSE_SIZE|COMMAND|ARGV)|OMPI_MCA_(ess|orte_ess|orte_hnp_uri|orte_local_daemon_uri|orte_launch|orte_app_num|orte_precondition_transports|pmix)($|_.*)` +
		`|PMIX_(RANK|NAMESPACE|ID|SERVER_.*|DSTORE_.*|SYSTEM_TMPDIR|SECURITY_MODE|BFROP_BUFFER_TYPE|GDS_MODULE|HOSTNAME|VERSION)` +
		`|PMI_.*|MPI_LOCAL(RANKID|NRANKS)|HYDI_CONTROL_FD` +
		`|SLURM_(PROCID|LOCALID|NODEID|STEP_.*|STEPID|TASK_PID|GTIDS|PMI.*)` +
		`|JSM_NAMESPACE_.*|GOROVOD_RENDEZVOUS_ADDRS)$`)

// torchPlacement matches those of torchrun, which other programs set, too, for reasons of their own.
var torchPlacement = lazyregexp.New(
	`^(RANK|LOCAL_RANK|GROUP_RANK|ROLE_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE|ROLE_WORLD_SIZE|TORCHELASTIC_.*)$`)

// Inherited lists the variables of a process's place in another launcher's job. A program that starts a job of its own
// there must not pass them on, because each of its ranks would believe that it is that one process. lookup reads the
// environment in question.
func Inherited(lookup func(name string) (string, bool)) func(name string) bool {
	_, torchrun := lookup("TORCHELASTIC_RUN_ID")
	return func(name string) bool {
		return placement().MatchString(name) || torchrun && torchPlacement().MatchString(name)
	}
}

package flags

import (
	"log/slog"
	"path/filepath"

	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/base/regular"
)

// mpiJobDirectory is where the operator of an MPIJob of Kubeflow puts files for the launcher.
const mpiJobDirectory = "/etc/mpi"

// mpiJobCooldown is the cooldown range of an elastic MPIJob, in seconds. It is short, because the operator replaces a
// pod that is gone by one of the same name.
var mpiJobCooldown = []int{2, 30}

// inMPIJob reports whether this is the launcher of an MPIJob and the user names no hosts.
func (f *Flags) inMPIJob(getenv func(string) string) bool {
	if f.NNodes != "" || f.Hosts != "" || f.Hostfile != "" || f.DiscoveryScript != "" || getenv(nodesVariable) != "" {
		return false
	}
	return regular.Is(filepath.Join(mpiJobDirectory, "hostfile"))
}

// useMPIJob takes the hosts from the operator's files. given: -np was given. Without -np the job has a process for each
// slot; an elastic job begins with --min-np processes. The operator's script prints names alone; its hostfile has the
// slots of each worker.
func (f *Flags) useMPIJob(given bool) error {
	f.Hostfile = filepath.Join(mpiJobDirectory, "hostfile")
	script := filepath.Join(mpiJobDirectory, "discover_hosts.sh")
	hosts, err := f.HostList()
	if err != nil {
		return err
	}
	if f.MinNP != nil {
		if regular.Is(script) {
			f.DiscoveryScript = "/bin/sh " + script // through sh, so that the script needs no right to be executed
			if f.SlotsPerHost == nil && len(hosts) > 0 {
				f.SlotsPerHost = &hosts[0].Slots
			}
		}
		if f.BlacklistCooldown == nil {
			f.BlacklistCooldown = mpiJobCooldown
		}
	}
	switch {
	case given:
	case f.MinNP != nil:
		f.NumProc = *f.MinNP
	default:
		for _, h := range hosts {
			f.NumProc += h.Slots
		}
	}
	return nil
}

// SayMPIJob says where the hosts come from, because the user has not named them.
func (f *Flags) SayMPIJob(name string) {
	from := f.Hostfile
	if f.DiscoveryScript != "" {
		from = filepath.Join(mpiJobDirectory, "discover_hosts.sh")
	}
	logging.Print(slog.LevelInfo, name, "this is an MPIJob: its hosts are those of "+from)
}

package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What one rank costs. A supervisor is a few threads, and the command at least one.
const (
	tasksPerRank       = 8
	descriptorsPerRank = 14 // pipes with both ends until it has started, two files, process, connections
	descriptorsOfOwn   = 64
)

// checkLimits refuses a number of processes that this host cannot carry, before
// it fails half-way.
func checkLimits(np int) error {
	type limit struct {
		value, perRank, own uint64
		what, raise         string
	}
	var limits []limit
	var r unix.Rlimit
	// The runtime has raised the soft limit to the hard one.
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		limits = append(limits, limit{r.Cur, descriptorsPerRank, descriptorsOfOwn, "open files (ulimit -n)", "raise it with ulimit -n or in /etc/security/limits.conf"})
	}
	// The superuser is exempt from this one.
	if os.Geteuid() != 0 && unix.Getrlimit(unix.RLIMIT_NPROC, &r) == nil && r.Cur != unix.RLIM_INFINITY {
		limits = append(limits, limit{r.Cur, tasksPerRank, 0, "processes of this user (ulimit -u)", "raise it with ulimit -u or in /etc/security/limits.conf"})
	}
	for _, f := range []struct{ path, what, raise string }{
		{"/proc/sys/kernel/pid_max", "process ids (kernel.pid_max)", "raise it with sysctl -w kernel.pid_max=4194304"},
		{"/proc/sys/kernel/threads-max", "threads (kernel.threads-max)", "raise it with sysctl -w kernel.threads-max"},
		{"/sys/fs/cgroup/pids.max", "tasks in this container (pids.max)", "raise the container's limit"},
	} {
		text, err := os.ReadFile(f.path)
		if err != nil {
			continue
		}
		// "max" is no number, and no limit.
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			limits = append(limits, limit{n, tasksPerRank, 0, f.what, f.raise})
		}
	}
	for _, l := range limits {
		if need := uint64(np)*l.perRank + l.own; need > l.value {
			most := (max(l.value, l.own) - l.own) / l.perRank
			return fmt.Errorf("-np %d: this host's limit on %s is %d, which is enough for about %d processes; %s", np, l.what, l.value, most, l.raise)
		}
	}
	return nil
}

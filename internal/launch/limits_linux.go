package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cost is what each of many processes or connections takes of this host's limits.
type cost struct {
	tasks       uint64 // processes and threads
	descriptors uint64
}

var (
	// A supervisor is a few threads, and the command at least one. Pipes with both ends until it has
	// started, two files, process, connections.
	ofRank = cost{tasks: 8, descriptors: 14}
	// ssh, and the thread that waits for its end. Three pipes with both ends until it has started, process.
	ofHost = cost{tasks: 2, descriptors: 7}
)

// descriptorsOfOwn is how many descriptors the launcher has in any case.
const descriptorsOfOwn = 64

// limit is one of this host's.
type limit struct {
	value, each, own uint64
	what, raise      string
}

// most is how many the limit is enough for.
func (l limit) most() uint64 { return (max(l.value, l.own) - l.own) / l.each }

// checkLimits refuses a number of processes that this host cannot carry, before the job starts.
func checkLimits(np int) error {
	if l := exceeded(uint64(np), ofRank, 0); l != nil {
		return fmt.Errorf("-np %d: this host's limit on %s is %d, which is enough for about %d processes; %s", np,
			l.what, l.value, l.most(), l.raise)
	}
	return nil
}

// checkRemotes refuses a number of other hosts to which this one cannot keep connections.
func checkRemotes(hosts, ranks int) error {
	if l := exceeded(uint64(hosts), ofHost, uint64(ranks)); l != nil {
		return fmt.Errorf("%d hosts: this host's limit on %s is %d, which is enough for about %d hosts and "+
			"%d ranks; %s", hosts, l.what, l.value, l.most(), ranks, l.raise)
	}
	return nil
}

// exceeded is the first limit that n of a cost exceed; nil if none does. Other descriptors are wanted besides.
func exceeded(n uint64, c cost, descriptors uint64) *limit {
	var limits []limit
	var r unix.Rlimit
	// The runtime has raised the soft limit to the hard one.
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		limits = append(limits, limit{r.Cur, c.descriptors, descriptorsOfOwn + descriptors, "open files (ulimit -n)",
			"raise it with ulimit -n or in /etc/security/limits.conf"})
	}
	// The superuser is exempt from this one.
	if os.Geteuid() != 0 && unix.Getrlimit(unix.RLIMIT_NPROC, &r) == nil && r.Cur != unix.RLIM_INFINITY {
		limits = append(limits, limit{r.Cur, c.tasks, 0, "processes of this user (ulimit -u)",
			"raise it with ulimit -u or in /etc/security/limits.conf"})
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
		if v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			limits = append(limits, limit{v, c.tasks, 0, f.what, f.raise})
		}
	}
	for i, l := range limits {
		if n*l.each+l.own > l.value {
			return &limits[i]
		}
	}
	return nil
}

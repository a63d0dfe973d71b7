package spawn

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/cgroup"
)

// cost is how much one process or one connection takes of this host's limits.
type cost struct {
	tasks       uint64 // processes and threads
	descriptors uint64
}

var (
	// One rank. Tasks: a few threads of the supervisor, and at least one of the command. Descriptors: pipes with both
	// ends until the supervisor has started, two files, the process, connections.
	ofRank = cost{tasks: 8, descriptors: 14}
	// One host. Tasks: ssh, and the thread that waits for its end. Descriptors: three pipes with both ends until ssh
	// has started, the process.
	ofHost = cost{tasks: 2, descriptors: 7}
)

// descriptorsOfOwn is how many descriptors the launcher needs anyway.
const descriptorsOfOwn = 64

// limit is one of this host's limits.
type limit struct {
	value, each, own uint64
	what, raise      string
}

// most is how many processes or connections the limit allows.
func (l limit) most() uint64 { return (max(l.value, l.own) - l.own) / l.each }

// CheckLimits refuses, before the job starts, more processes than this host can carry.
func CheckLimits(np int) error {
	if l := exceeded(uint64(np), ofRank, 0); l != nil {
		return fmt.Errorf("-np %d: this host's limit on %s is %d, which is enough for about %d processes; %s", np,
			l.what, l.value, l.most(), l.raise)
	}
	return nil
}

// CheckRemotes refuses more other hosts than this host can keep connections to.
func CheckRemotes(hosts, ranks int) error {
	if l := exceeded(uint64(hosts), ofHost, uint64(ranks)); l != nil {
		return fmt.Errorf("%d hosts: this host's limit on %s is %d, which is enough for about %d hosts and "+
			"%d ranks; %s", hosts, l.what, l.value, l.most(), ranks, l.raise)
	}
	return nil
}

// exceeded returns the first limit that n times the cost c exceeds; nil if none. descriptors are needed besides.
func exceeded(n uint64, c cost, descriptors uint64) *limit {
	var limits []limit
	var r unix.Rlimit
	// Getrlimit reads the soft limit, which Go's runtime has raised to the hard one.
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		limits = append(limits, limit{r.Cur, c.descriptors, descriptorsOfOwn + descriptors, "open files (ulimit -n)",
			"raise it with ulimit -n or in /etc/security/limits.conf"})
	}
	// The superuser is exempt from this limit.
	if os.Geteuid() != 0 && unix.Getrlimit(unix.RLIMIT_NPROC, &r) == nil && r.Cur != unix.RLIM_INFINITY {
		limits = append(limits, limit{r.Cur, c.tasks, 0, "processes of this user (ulimit -u)",
			"raise it with ulimit -u or in /etc/security/limits.conf"})
	}
	for _, f := range []struct{ path, what, raise string }{
		{"/proc/sys/kernel/pid_max", "process ids (kernel.pid_max)", "raise it with sysctl -w kernel.pid_max=4194304"},
		{"/proc/sys/kernel/threads-max", "threads (kernel.threads-max)", "raise it with sysctl -w kernel.threads-max"},
	} {
		text, err := os.ReadFile(f.path)
		if err != nil {
			continue
		}
		if v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			limits = append(limits, limit{v, c.tasks, 0, f.what, f.raise})
		}
	}
	if tasks := cgroup.Of(os.DirFS("/")).Tasks(); tasks > 0 {
		limits = append(limits, limit{uint64(tasks), c.tasks, 0, "tasks in this control group (pids.max)",
			"raise the limit of the container or the login session"})
	}
	for i, l := range limits {
		if n*l.each+l.own > l.value {
			return &limits[i]
		}
	}
	return nil
}

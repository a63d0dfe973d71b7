package spawn

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orphanage makes the launcher the reaper of the processes that a killed supervisor leaves, and ends them.
type orphanage struct {
	// tag is in the environment of the job's processes, unless they clear it. It is nil unless orphans may belong to
	// others: the launcher has other children, or had some before exec as another program, or it is the first process
	// of a container.
	tag []byte

	mu  sync.Mutex // one sweep at a time
	all *family    // all processes that were swept. mu
}

// adopt makes the launcher a reaper. Call it before anything starts. The job's processes have secret as SecretVariable.
// others: the launcher has other children, too.
func adopt(secret string, others bool) (*orphanage, error) {
	o := &orphanage{all: newFamily()}
	if others || os.Getpid() == 1 || hasChildren() {
		o.tag = []byte(SecretVariable + "=" + secret + "\x00")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	return o, nil
}

// hasChildren asks the kernel whether this process has any children, dead ones included. It does not read /proc,
// because a host may have many processes.
func hasChildren() bool {
	err := error(unix.EINTR)
	for err == unix.EINTR {
		err = unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	}
	return err != unix.ECHILD
}

// close gives up the reaper's role: orphans go again where they would go without a job.
func (o *orphanage) close() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }

// sweep ends all orphans: each gets SIGTERM, then SIGKILL after LeftoverGrace. It returns when no orphan is left, or
// after sweepLimit more. It spares living supervisors and the processes below them: living calls a function with their
// pids, and lets no supervisor start until that function returns. command is the pid of the dead supervisor's command,
// which the supervisor may have reaped at its end; 0 if unknown.
func (o *orphanage) sweep(command int, living func(func(pids []int))) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.all.tidy()
	if command != 0 {
		o.all.add(command)
	}
	asked := map[int]time.Time{}
	giveUp := time.Now().Add(LeftoverGrace + sweepLimit)
	pause := time.NewTicker(sweepInterval)
	defer pause.Stop()
	for time.Now().Before(giveUp) {
		found := false
		living(func(supervisors []int) { found = o.round(supervisors, asked) })
		if !found {
			return
		}
		<-pause.C
	}
}

// round looks for orphans once. It asks each new one to end, and kills those whose time is over; asked has the time of
// each first request. found: there were orphans.
func (o *orphanage) round(supervisors []int, asked map[int]time.Time) (found bool) {
	for _, p := range Descendants(os.Getpid(), supervisors...) {
		if !o.ours(p) {
			continue
		}
		found = true // a dead one counts, too: it may have had children
		o.all.add(p)
		if reaped, err := syscall.Wait4(p, nil, syscall.WNOHANG, nil); err == nil && reaped == p {
			continue
		}
		switch at, ok := asked[p]; {
		case !ok:
			asked[p] = time.Now()
			unix.Kill(p, unix.SIGTERM)
			unix.Kill(p, unix.SIGCONT) // a stopped process sees no other signal
		case time.Since(at) >= LeftoverGrace:
			unix.Kill(p, unix.SIGKILL)
		}
	}
	return found
}

// ours reports whether the process belongs to the job.
func (o *orphanage) ours(pid int) bool {
	if o.tag == nil {
		return true
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(env, o.tag)
}

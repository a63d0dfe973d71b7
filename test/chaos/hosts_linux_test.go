package chaos

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/cluster"
)

// slots is the number of workers per host.
const slots = 2

// TestChaosOfHosts is TestChaos over hosts that each have a wire and an sshd. Hosts are cut off,
// slowed, stopped and killed, too. The launcher runs on the first host, whose only fault is in its wire.
func TestChaosOfHosts(t *testing.T) {
	s := theSeed(t)
	c := cluster.New(t, 4)
	j := &cloud{Cluster: c}
	j.job = startOn(t, func(name string, args ...string) *exec.Cmd {
		return c.Hosts[0].Command(context.Background(), name, args...)
	}, s,
		[]string{"-np", "4", "--min-np", "2", "--max-np", "8", "--blacklist-cooldown-range", "1", "2",
			"--start-timeout", "10"},
		[]string{"GOROVOD_HEARTBEAT_SECONDS=5", "GOROVOD_SSH=" + c.SSH()}, j.lines(nil)...)
	j.await("the first commits", func() bool { return len(j.veterans()) >= 4 })
	j.torment(j.strike)
	j.calm()
	j.hosts(j.lines(nil)...)
	j.await("all eight are together again", func() bool { return j.together() == slots*len(c.Hosts) })
	j.finish()
	j.empty()
}

// cloud is a job on several hosts.
type cloud struct {
	*cluster.Cluster
	*job
	mending []mend
}

// mend is when a host's fault ends, and how.
type mend struct {
	at time.Time
	do func()
}

// address is the name of a host in the discovery script's output. By it the launcher recognises its own host.
func (j *cloud) address(i int) string {
	if i == 0 {
		return j.Hosts[0].Address
	}
	return fmt.Sprintf("h%d", i)
}

// lines is the output of the discovery script without some hosts.
func (j *cloud) lines(without func(i int) bool) (lines []string) {
	for i := range j.Hosts {
		if without == nil || !without(i) {
			lines = append(lines, fmt.Sprintf("%s:%d", j.address(i), slots))
		}
	}
	return lines
}

// strike ends the faults whose time is over, and injects one fault.
func (j *cloud) strike() {
	j.heal(time.Now())
	spared := j.spare()
	if spared == nil {
		return
	}
	k := j.rng.IntN(16)
	if k < 8 {
		j.strikeWorkers(spared, k)
		return
	}
	i := j.rng.IntN(len(j.Hosts))
	name := j.address(i)
	if k < 10 { // discovery
		j.faults["hosts offered"]++
		j.hosts(j.lines(func(n int) bool { return n == i && k == 8 && name != spared.host })...)
		return
	}
	if name == spared.host || time.Now().Before(j.hostUntil[name]) {
		return
	}
	brief := time.Duration(j.rng.ExpFloat64() * float64(2*time.Second))
	long := 2*heartbeat + brief
	switch {
	case k < 12:
		cut := brief
		if j.rng.IntN(2) == 0 {
			cut = long
		}
		if i == 0 && spared.host != j.address(0) {
			return // this would cut the launcher off from the spared worker
		}
		j.faults["cut"]++
		j.Hosts[i].Link(j.t, "down")
		j.trouble(i, cut, func() { j.Hosts[i].Link(j.t, "up") })
	case k < 14:
		j.faults["slow"]++
		j.Hosts[i].Slow(j.t, fmt.Sprintf("%dkbit", 500+j.rng.IntN(5000)))
		j.trouble(i, brief, func() { j.Hosts[i].Slow(j.t, "") })
	case i == 0: // the test must not end the launcher's own processes
	case k < 15:
		j.faults["host stopped"]++
		pids := j.Hosts[i].Processes()
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGSTOP)
		}
		j.trouble(i, long, func() {
			for _, pid := range pids {
				syscall.Kill(pid, syscall.SIGCONT)
			}
		})
	case j.rng.IntN(2) == 0:
		j.faults["agent killed"]++
		for _, pid := range cluster.Children(j.SSHDs[i].Process.Pid) {
			syscall.Kill(pid, syscall.SIGKILL)
			break // it was the session; its agent ends, too
		}
		j.trouble(i, 0, nil)
	default:
		j.faults["host killed"]++
		j.Hosts[i].Link(j.t, "down") // no connection is closed
		j.StopSSHD(i)
		for _, pid := range j.Hosts[i].Processes() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		j.trouble(i, brief, func() {
			j.Hosts[i].Link(j.t, "up")
			j.StartSSHD(i)
		})
	}
}

// trouble notes that a host is out of order for a time, and how that ends. If the host is the
// launcher's, all other hosts are out of order for the launcher.
func (j *cloud) trouble(i int, pause time.Duration, end func()) {
	until := time.Now().Add(pause)
	for n := range j.Hosts {
		if n == i || i == 0 {
			j.hostUntil[j.address(n)] = until
			j.blame(j.address(n), pause)
		}
	}
	if end != nil {
		j.mending = append(j.mending, mend{until, end})
	}
}

// heal ends the faults whose time is over at now.
func (j *cloud) heal(now time.Time) {
	var left []mend
	for _, m := range j.mending {
		if m.at.After(now) {
			left = append(left, m)
		} else {
			m.do()
		}
	}
	j.mending = left
}

// calm ends all faults.
func (j *cloud) calm() { j.heal(time.Now().Add(time.Hour)) }

// empty checks that no host runs anything but its sshd.
func (j *cloud) empty() {
	for i, h := range j.Hosts {
		for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
			var left []int
			for _, pid := range h.Processes() {
				if pid != j.SSHDs[i].Process.Pid {
					left = append(left, pid)
				}
			}
			if len(left) == 0 {
				break
			}
			if time.Now().After(end) {
				j.t.Errorf("processes %v are left on host %s", left, j.address(i))
				break
			}
		}
	}
}

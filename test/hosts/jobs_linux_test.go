package hosts

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestCollectivesOverHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4)
	for _, job := range []struct {
		hosts string
		np    int
	}{
		{"h0:2,h1:2", 4},
		{"h1:1,h2:1", 2}, // the launcher's host has no ranks
		{"six1:2,h2:1,six3:1", 4},
		{"h0:1,h1:3,h2:2,h3:1", 7},
		{"10.78.0.2:1,[fd78::3]:1", 2},
	} {
		for _, flat := range []string{"0", "1"} {
			j := c.run(does("collectives", "HOROVOD_HIERARCHICAL_ALLREDUCE="+flat), "-np", fmt.Sprint(job.np), "-H",
				job.hosts, self())
			j.expect(0)
			if n := strings.Count(j.stdout.String(), "all is right"); n != job.np {
				t.Errorf("%s: %d of %d ranks are right", job.hosts, n, job.np)
			}
		}
	}
}

// BenchmarkLaunch measures a whole job that does nothing on four hosts.
func BenchmarkLaunch(b *testing.B) {
	c := newCluster(b, 4)
	for b.Loop() {
		c.run(nil, "-np", "4", "-H", "h0:1,h1:1,h2:1,h3:1", "true").expect(0)
	}
}

// BenchmarkSSH measures the CPU time of one ssh on the launcher's host, without the sshd's.
func BenchmarkSSH(b *testing.B) {
	c := newCluster(b, 2)
	var cpu time.Duration
	for b.Loop() {
		ssh := c.Hosts[0].Command(b.Context(), "ssh", "-F", c.File("config"), "-T", "-o", "BatchMode=yes", "-o",
			"StrictHostKeyChecking=accept-new", "h1", "true")
		if out, err := ssh.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		cpu += ssh.ProcessState.UserTime() + ssh.ProcessState.SystemTime()
	}
	b.ReportMetric(cpu.Seconds()/float64(b.N)*1e3, "ms-cpu/ssh")
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	examine := func(code int, args ...string) *job {
		j := c.run(nil, args...)
		j.Args = append(j.Args[:2], append([]string{c.gorovod, "doctor", "--start-timeout", "5"}, args...)...)
		j.expect(code)
		return j
	}
	j := examine(0, "-H", "h0:1,h1:1,six2:1")
	for _, want := range []string{"h0, h1, six2\n", "net1 10.78.0.2", "net2 fd78::3", "LATENCY", "BANDWIDTH",
		"ALLREDUCE between these hosts: "} {
		if !strings.Contains(j.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &j.stdout)
		}
	}
	if !regexp.MustCompile(`(?m)^ *six2( +\d+\.\d+){2} +-$`).Match(j.stdout.Bytes()) {
		t.Errorf("the ways from the last host were not measured:\n%s", &j.stdout)
	}
	c.Write("hosts", "h1 slots=64 # more than cores\n")
	j = examine(1, "--hostfile", c.File("hosts"), "-i", c.File("id"), "-p", "22", "--remote-command", c.gorovod,
		"--python", "false", "--no-pairs")
	for _, want := range []string{"HOST        h1\n", "warning: h1: 64 slots on", "FAILURE: h1: nothing is known of " +
		"the Python false, whose frameworks count: it has ended (exit status 1)", "cannot run"} {
		if !strings.Contains(j.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &j.stdout)
		}
	}
	if strings.Contains(j.stdout.String(), "LATENCY") {
		t.Errorf("--no-pairs:\n%s", &j.stdout)
	}
	for option, value := range map[string]string{"-i": c.File("missing"), "--hostfile": c.File("missing"), "-H": "h1:x",
		"--start-timeout": "0"} {
		examine(2, option, value)
	}
	examine(1, "-H", "h1:1", "-p", "2222")
	c.StopSSHD(2)
	j = examine(1, "-H", "h1:1,h2:1")
	for _, want := range []string{"FAILURE: h2: ssh ended with code 255", "Connection refused",
		"A job over these hosts cannot run."} {
		if !strings.Contains(j.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &j.stdout)
		}
	}
}

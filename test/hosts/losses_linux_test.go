package hosts

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/cluster"
)

// nobodyLeft waits until no process with mark is left.
func nobodyLeft(t testing.TB, mark string) {
	t.Helper()
	cluster.NobodyLeft(t, mark, 20*time.Second)
}

// until starts the job, and returns when n lines of its stdout contain text.
func (j *job) until(text string, n int) {
	j.t.Helper()
	j.Stdout = nil
	out, err := j.StdoutPipe()
	if err != nil {
		j.t.Fatal(err)
	}
	if err := j.Start(); err != nil {
		j.t.Fatal(err)
	}
	stop := time.AfterFunc(time.Minute, func() { j.Process.Signal(syscall.SIGKILL) })
	lines := bufio.NewScanner(out)
	for n > 0 && lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			n--
		}
	}
	stop.Stop()
	if n > 0 {
		j.t.Fatalf("%d lines with %q did not come: %s", n, text, &j.stderr)
	}
	j.read = make(chan struct{})
	go func() {
		defer close(j.read)
		for lines.Scan() {
			j.stdout.WriteString(lines.Text() + "\n")
		}
	}()
}

// wait waits for the end of the job, at most a minute.
func (j *job) wait() {
	stop := time.AfterFunc(time.Minute, func() { j.Process.Signal(syscall.SIGKILL) })
	defer stop.Stop()
	<-j.read
	j.Wait()
}

// In whatever way a running host is lost, the job ends soon, names the host, and
// leaves no process on any host.
func TestLostHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for name, lose := range map[string]func(mark string){
		"ssh":   func(mark string) { kill(t, cluster.Marked(mark, "ssh -F"), "h2") },
		"agent": func(mark string) { kill(t, cluster.Marked("HOST_MARK=h2", " agent"), "") },
		"sshd":  func(mark string) { kill(t, cluster.Children(c.SSHDs[2].Process.Pid), "") },
	} {
		t.Run(name, func(t *testing.T) {
			mark := "HOSTS_TEST_MARK=" + name + strconv.Itoa(os.Getpid())
			c.Write("named", "#!/bin/sh\nexport HOST_MARK=h$(ip -4 -o address | sed -n "+
				"'s/.*10\\.78\\.0\\.\\([0-9]\\).*/\\1/p' | awk '{print $1-1}')\nexec "+c.gorovod+" \"$@\"\n")
			os.Chmod(c.File("named"), 0o700)
			j := c.run(does("loop", mark), "-np", "4", "-H", "h1:2,h2:2", "--remote-command", c.File("named"),
				"--grace-period", "1", self())
			j.t = t
			j.until("looping", 4)
			begin := time.Now()
			lose(mark)
			j.wait()
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("it took %v", took)
			}
			// The job may notice the death of a rank on the lost host first.
			if code := j.ProcessState.ExitCode(); code != 255 && code != 3 && code != 143 {
				t.Errorf("exit code %d", code)
			}
			if text := j.stderr.String(); !strings.Contains(text, "on host h2 (pid") {
				t.Errorf("it does not name the host: %s", text)
			}
			nobodyLeft(t, mark)
		})
	}
}

// kill kills the processes whose command line contains what. There must be at least one.
func kill(t *testing.T, pids []int, what string) {
	t.Helper()
	n := 0
	for _, p := range pids {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(p) + "/cmdline")
		if bytes.Contains(line, []byte(what)) {
			syscall.Kill(p, syscall.SIGKILL)
			n++
		}
	}
	if n == 0 {
		t.Errorf("nothing to kill")
	}
}

func TestDeathOfTheLauncherLeavesNobodyAnywhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	mark := "HOSTS_TEST_MARK=launcher" + strconv.Itoa(os.Getpid())
	j := c.run([]string{mark}, "-np", "4", "-H", "h0:1,h1:1,h2:2", "bash", "-c",
		"sleep 1000 & setsid sleep 1000 & echo ready; wait")
	j.until("ready", 4)
	j.Process.Kill()
	j.wait()
	nobodyLeft(t, mark)
}

// The ranks or the launcher notice a cut wire, and the host ends its processes by
// itself.
func TestACutWire(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	mark := "HOSTS_TEST_MARK=wire" + strconv.Itoa(os.Getpid())
	j := c.run([]string{mark}, "-np", "2", "-H", "h1:1,h2:1", "--grace-period", "0", "sh", "-c",
		"echo ready; exec sleep 1000")
	j.until("ready", 2)
	c.Hosts[2].Link(t, "down")
	j.wait()
	j.ended(255, "rank 1 on host h2 (\\(pid [0-9]+\\) )?is lost with its host: nothing was heard of it for 20s")
	for _, p := range cluster.Marked(mark, "") { // or the host would end them after two minutes
		syscall.Kill(p, syscall.SIGTERM)
	}
	nobodyLeft(t, mark)
}

// A host that is cut off before it has answered delays the job by no more than the time-out.
func TestAWireThatIsCutBefore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	c.Hosts[1].Link(t, "down")
	begin := time.Now()
	c.run(nil, "-np", "1", "-H", "h1:1", "--start-timeout", "2", "true").expect(1, "host h1: ", "is the host up")
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestSignalsReachAllHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	mark := "HOSTS_TEST_MARK=signal" + strconv.Itoa(os.Getpid())
	j := c.run([]string{mark}, "-np", "3", "-H", "h0:1,h1:1,h2:1", "sh", "-c",
		"trap 'echo asked; exit 0' INT; echo ready; while :; do sleep 0.05; done")
	j.until("ready", 3)
	j.Process.Signal(syscall.SIGINT) // nsenter has become the launcher
	j.wait()
	j.ended(130, "interrupted by signal 2")
	nobodyLeft(t, mark)
	if n := strings.Count(j.stdout.String(), "asked"); n != 3 {
		t.Errorf("%d of 3 were asked: %s", n, &j.stdout)
	}
}

// A slow reader of the output slows down ranks on other hosts. It loses no output, and
// blocks nothing else in the launcher.
func TestMuchOutputOfOtherHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	j := c.run(nil, "-np", "4", "-H", "h1:2,h2:2", "sh", "-c", "yes 'a line of some length' | head -n 100000; "+
		"echo last >&2")
	j.expect(0)
	if n := strings.Count(j.stdout.String(), ">:a line of some length\n"); n != 400_000 {
		t.Errorf("%d lines of 400000", n)
	}
	if n := strings.Count(j.stderr.String(), ">:last\n"); n != 4 {
		t.Errorf("%d of 4 last lines", n)
	}
}

func TestOutputFilesOfOtherHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	out := c.File("out")
	c.run(nil, "-np", "2", "-H", "h0:1,h1:1", "--output-filename", out, "sh", "-c", "echo out $HOROVOD_RANK").expect(0)
	for rank, want := range []string{"out 0\n", "out 1\n"} {
		if got := readFile(t, out+"/rank."+strconv.Itoa(rank)+"/stdout"); got != want {
			t.Errorf("rank %d: %q", rank, got)
		}
	}
	full := c.File("full")
	os.MkdirAll(full+"/rank.1", 0o700)
	if err := os.Symlink("/dev/full", full+"/rank.1/stdout"); err != nil {
		t.Fatal(err)
	}
	c.run(nil, "-np", "2", "-H", "h0:1,h1:1", "--output-filename", full, "echo", "hi").expect(1,
		"output is lost: write .*/rank.1/stdout: no space left on device")
}

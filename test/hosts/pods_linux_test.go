package hosts

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth/certtest"
	"github.com/gorovod/gorovod/test/cluster"
	"github.com/gorovod/gorovod/test/output"
)

// pods are the pods of an elastic job. Each has a launcher, and a host with a name of its own.
type pods struct {
	*testCluster
	env, args []string
	mark      string
}

// pod is the launcher of one pod.
type pod struct {
	*trial
	host int
}

// pods prepares a job of least to most pods, with a slot each.
func (c *testCluster) pods(least, most int, args ...string) *pods {
	c.t.Helper()
	p := &pods{testCluster: c, mark: "HOSTS_TEST_MARK=" + c.t.Name() + fmt.Sprint(os.Getpid())}
	c.Write("secret", strings.Repeat("0123456789abcdef", 4)+"\n")
	p.env = does("elastic", p.mark, "GOROVOD_HEARTBEAT_SECONDS=5", untilVariable+"="+c.File("enough"),
		"GORACE=atexit_sleep_ms=0", "GOROVOD_SECRET_FILE="+c.File("secret"),
		fmt.Sprintf("PET_NNODES=%d:%d", least, most),
		"PET_NPROC_PER_NODE=1", "PET_MASTER_ADDR="+c.Hosts[0].Address, "PET_MASTER_PORT=29400")
	p.args = append(args, self())
	return p
}

// start starts the launcher of a pod on a host. rank is the pod's number, which need not be the host's. env adds to its
// environment.
func (p *pods) start(host, rank int, env ...string) *pod {
	p.t.Helper()
	j := &job{t: p.t, Cmd: p.Command(context.Background(), host, p.horovodrun, p.args...)}
	j.WaitDelay = time.Second
	j.Env = append(append(append(os.Environ(), p.env...), fmt.Sprint("JOB_COMPLETION_INDEX=", rank)), env...)
	r := &trial{job: j, c: p.testCluster, said: &output.Buffer{}, done: make(chan struct{}), mark: p.mark}
	r.Stdout, r.Stderr = r.said, r.said
	if err := r.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		r.Wait()
	}()
	p.t.Cleanup(func() {
		r.Process.Kill()
		<-r.done
	})
	return &pod{r, host}
}

// kill kills all processes of the pod, as the end of a container does.
func (p *pod) kill() {
	for _, pid := range p.c.Hosts[p.host].Processes() {
		if pid != p.sshd() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	<-p.done
}

func (p *pod) sshd() int {
	if d := p.c.SSHDs[p.host]; d != nil {
		return d.Process.Pid
	}
	return 0
}

// ends waits for the launcher's end, and checks how it ends.
func (p *pod) ends(code int, says ...string) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(40 * time.Second):
		p.t.Fatalf("the launcher of pod %d does not end:\n%s", p.host, p.said)
	}
	if got := p.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d:\n%s", got, code, p.said)
	}
	for _, text := range says {
		if !regexp.MustCompile(text).MatchString(p.said.String()) {
			p.t.Errorf("it does not say %q:\n%s", text, p.said)
		}
	}
}

// Pods come and go. A job begins with one pod, takes in others, and goes on without a drained pod and a killed pod. It
// takes in the pods that replace them, with the same number and name or with new ones.
func TestElasticPods(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4)
	p := c.pods(1, 3)
	first := p.start(0, 0)
	first.await("worker 0 .*: of 1", 1)
	second := p.start(1, 1)
	first.await("worker [01] .*: of 2", 2)
	third := p.start(2, 2)
	first.await("worker [012] .*: of 3", 3)

	second.Process.Signal(syscall.SIGTERM) // a drain
	first.await("host h1 leaves the job: its launcher got SIGTERM", 1)
	first.awaitAll(lines{">:dismissed\n", 1}, lines{"worker [02] .*: of 2", 2})
	second.ends(143) // the exit code must not look like success
	began := time.Now()
	second = p.start(1, 1)
	first.await("worker .*: of 3", 3)
	t.Logf("the drained pod's replacement trains after %.2f s", time.Since(began).Seconds())

	third.kill()
	first.await("host h2 is lost: the connection to node 2 .h2. was cut short", 1)
	first.await("worker [03] .*: of 2", 2)
	fourth := p.start(3, 7) // with another name and number
	first.await("worker .*: of 3", 3)

	p.start(2, 1) // pod 1 again, on another host: the job counts the first one as lost
	first.await("node 1 has come again, as host h2/2: host h1/2 is taken for lost", 1)
	second.ends(1, "another node has come with this node's number")
	first.await("worker .*: of 3", 3)
	first.finish(3)
	fourth.ends(0)
	cluster.NobodyLeft(t, p.mark, 20*time.Second)
}

// With too few pods the job waits, says so, and ends at the time-out.
func TestTooFewPods(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	p := c.pods(2, 2, "--elastic-timeout", "3")
	first := p.start(0, 0)
	first.await("1 of the 2 slots that the job needs are there: waiting for others, at most 3s", 1)
	second := p.start(1, 1)
	first.await("worker [01] .*: of 2", 2)
	second.Process.Signal(syscall.SIGTERM)
	first.await("1 of the 2 slots that the job needs are there.*: waiting for others, at most 3s", 1)
	second.ends(143)
	first.ends(1, "slots that the job needs are there after 3s: .*--nnodes")
	cluster.NobodyLeft(t, p.mark, 20*time.Second)
}

// When node 0 is lost, the other nodes wait for it. Then the job begins again, from the newest commit if that is on a
// disk.
func TestNode0OfElasticPodsComesBack(t *testing.T) {
	t.Parallel()
	for _, drain := range []bool{false, true} {
		t.Run(fmt.Sprint("drain=", drain), func(t *testing.T) {
			c := newCluster(t, 2)
			p := c.pods(1, 2)
			first := p.start(0, 0)
			second := p.start(1, 1)
			first.await("worker [01] .*: of 2", 2)
			if drain {
				first.Process.Signal(syscall.SIGTERM)
				first.ends(143)
			} else {
				first.kill()
			}
			second.await("node 0 is gone, and with it the job's driver; this node waits for it to come back", 1)
			first = p.start(0, 0)
			first.await("worker [01] .*: of 2", 2)
			first.finish(2)
			second.ends(0)
			cluster.NobodyLeft(t, p.mark, 20*time.Second)
		})
	}
}

// A cloud's notice that it will take a machine away has the same effect as SIGTERM.
func TestPodLeavesByNotice(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	p := c.pods(1, 2)
	first := p.start(0, 0)
	second := p.start(1, 1, "GOROVOD_LEAVE_ON="+c.File("notice"))
	first.await("worker [01] .*: of 2", 2)
	c.Write("notice", "")
	first.await("host h1 leaves the job: /.*/notice is there", 1)
	first.await("worker 0 .*: of 1", 1)
	second.ends(143)
	first.finish(1)
}

// Nodes of other jobs do not disturb a job.
func TestPodsOfOtherJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	p := c.pods(1, 2, "--rdzv-id", "ours")
	first := p.start(0, 0)
	first.await("worker 0 .*: of 1", 1)
	c.Write("other", strings.Repeat("f", 64))
	p.start(1, 1, "GOROVOD_SECRET_FILE="+c.File("other")).ends(1, `node 0 at \S+:29400 has another secret`)
	p.args = append([]string{"--rdzv-id", "theirs"}, p.args[2:]...)
	p.start(1, 1).ends(1, `node 0 belongs to another job: its --rdzv-id is "ours", and this node's is "theirs"`)
	p.args[1] = "ours"
	p.start(1, 1, "PET_NNODES=2").ends(1, "the nodes come and go for node 0 or for this node, and not for both")
	p.start(1, 1)
	first.await("worker [01] .*: of 2", 2)
	first.finish(2)
}

// Pods with certificates of one CA form a job. A pod whose certificate another CA has signed, or that has none, does
// not get in.
func TestPodsWithCertificates(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	p := c.pods(1, 2)
	ca, later := certtest.NewCA(t), time.Now().Add(time.Hour)
	named := func(ca *certtest.CA) []string { return certtest.Environment(ca.Issue(t.TempDir(), later)) }
	first := p.start(0, 0, named(ca)...)
	first.await("worker 0 .*: of 1", 1)
	p.start(1, 1, named(certtest.NewCA(t))...).ends(1, "node 0 at .*: certificate refused: .*/ca.crt does not vouch "+
		"for what the other end presents: .*unknown authority")
	p.start(1, 1).ends(1, "node 0 at .*: certificate refused: the other end wants one that its CA has signed: set "+
		"GOROVOD_TLS_CERT")
	first.await("refused who did not prove to belong to this job: .*: certificate refused: .* does not vouch", 1)
	p.start(1, 1, named(ca.Below())...)
	first.await("worker [01] .*: of 2", 2)
	first.finish(2)
}

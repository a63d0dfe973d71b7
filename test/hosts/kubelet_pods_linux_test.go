package hosts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
	"github.com/gorovod/gorovod/test/cluster"
	"github.com/gorovod/gorovod/test/kubelet"
	"github.com/gorovod/gorovod/test/output"
)

// jobOfPods runs the pods of an elastic Job of two. They know one another by name alone, and how many processes to run
// by their limits.
type jobOfPods struct {
	*kubelet.Cluster
	t          *testing.T
	dir, mark  string
	horovodrun string
}

// podOfJob is the launcher of a pod.
type podOfJob struct {
	*trial
	k    *jobOfPods
	name string
	node int
}

// keeps is how long the pods' name server keeps its answers.
const keeps = 2 * time.Second

func newJobOfPods(t *testing.T, nodes int, limits kubelet.Limits) *jobOfPods {
	k := &jobOfPods{Cluster: kubelet.New(t, nodes, limits, keeps), t: t, dir: t.TempDir(),
		mark: "HOSTS_TEST_MARK=" + t.Name() + fmt.Sprint(os.Getpid())}
	k.horovodrun = filepath.Join(k.dir, "horovodrun")
	if err := os.Symlink(self(), k.horovodrun); err != nil {
		t.Fatal(err)
	}
	k.write("secret", strings.Repeat("0123456789abcdef", 4))
	return k
}

func (k *jobOfPods) write(name, text string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// start starts the pod with that number on a node. Nobody finds it by its name before it is Ready.
func (k *jobOfPods) start(index, node int, program string, env ...string) *podOfJob {
	k.t.Helper()
	name := fmt.Sprint("train-", index)
	j := &job{t: k.t, Cmd: k.Command(context.Background(), name, node, k.horovodrun, self())}
	j.WaitDelay = time.Second
	j.Env = append(append(os.Environ(), does(program, k.mark, "PET_NNODES=1:2", "GOROVOD_HEARTBEAT_SECONDS=5",
		"GORACE=atexit_sleep_ms=0", untilVariable+"="+filepath.Join(k.dir, "enough"),
		"GOROVOD_SECRET_FILE="+filepath.Join(k.dir, "secret"), fmt.Sprint("JOB_COMPLETION_INDEX=", index))...), env...)
	p := &podOfJob{k: k, name: name, node: node,
		trial: &trial{job: j, said: &output.Buffer{}, done: make(chan struct{}), mark: k.mark}}
	p.Stdout, p.Stderr = p.said, p.said
	if err := p.Start(); err != nil {
		k.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.Wait()
	}()
	k.t.Cleanup(func() {
		p.kill()
		cluster.NobodyLeft(k.t, k.mark, 20*time.Second)
	})
	return p
}

// kill ends the container.
func (p *podOfJob) kill() {
	for _, pid := range p.k.Nodes[p.node].Processes() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.done
	p.k.Gone(p.name, p.node)
}

// ends waits for the launcher's end, and checks how it ends.
func (p *podOfJob) ends(code int, says ...string) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(40 * time.Second):
		p.t.Fatalf("the launcher of %s does not end:\n%s", p.name, p.said)
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

// oneCPU is a limit that leaves a pod one slot.
var oneCPU = kubelet.Limits{CPUs: 1, Memory: 1 << 30}

// A pod waits for a name that does not exist yet, and that the name server denies for a while after it does. When pod 0
// is replaced, its name leads to another address, and for a while still to the old one.
func TestPodsFindPod0ByName(t *testing.T) {
	t.Parallel()
	k := newJobOfPods(t, 3, oneCPU)
	if err := k.Unlimited(); err != nil {
		t.Skip(err)
	}
	second := k.start(1, 1, "elastic")
	k.Ready("train-1", 1)
	second.await(`node 0 cannot be reached at train-0.train.ns.svc.cluster.local:29500: lookup .*no such host; this `+
		`node goes on trying`, 1)
	first := k.start(0, 0, "elastic")
	first.await("worker 0 .*: of 1", 1) // not one for each CPU of the machine
	k.Ready("train-0", 0)
	first.await("worker [01] .*: of 2", 2)

	first.kill()
	second.await("node 0 is gone, and with it the job's driver; this node waits for it to come back", 1)
	first = k.start(0, 2, "elastic")
	k.Ready("train-0", 2)
	first.await("worker [01] .*: of 2", 2)
	k.write("enough", "")
	first.ends(0)
	second.ends(0)
}

// When pod 0 is replaced, another job's pod may get its old address before the name server has forgotten that.
func TestOldAddressOfPod0IsAnothers(t *testing.T) {
	t.Parallel()
	k := newJobOfPods(t, 3, kubelet.Limits{})
	k.write("other", strings.Repeat("f", 64))
	for _, of := range []struct{ what, env string }{
		{"has another secret", "GOROVOD_SECRET_FILE=" + filepath.Join(k.dir, "other")},
		{"belongs to another job", "PET_RDZV_ID=theirs"},
	} {
		slots := "PET_NPROC_PER_NODE=1"
		first := k.start(0, 0, "elastic", slots)
		k.Ready("train-0", 0)
		second := k.start(1, 1, "elastic", slots)
		first.await("worker [01] .*: of 2", 2)
		first.kill()
		theirs := k.start(0, 0, "elastic", slots, of.env)
		second.await("node 0 .*"+of.what+".*; this node goes on trying for 30s, since train-0", 1)
		first = k.start(0, 2, "elastic", slots)
		k.Ready("train-0", 2)
		first.await("worker [01] .*: of 2", 2)
		for _, p := range []*podOfJob{first, second, theirs} {
			p.kill()
		}
	}
}

func init() { programs["slots"] = saysSlots; programs["glutton"] = glutton }

// saysSlots says how many ranks there are.
func saysSlots() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := hvd.InitContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer hvd.Shutdown()
	fmt.Printf("rank %d of %d\n", hvd.Rank(), hvd.Size())
	return 0
}

// The number of processes is the CPU limit of the pod's container, as the container sees it.
func TestSlotsAreThoseOfTheContainer(t *testing.T) {
	t.Parallel()
	for cpus, want := range map[float64]int{0.5: 1, 1: 1, 1.5: 1, 2: 2, 1000: runtime.NumCPU()} {
		t.Run(fmt.Sprint(cpus), func(t *testing.T) {
			if want > runtime.NumCPU() {
				t.Skipf("this machine has %d CPUs", runtime.NumCPU())
			}
			k := newJobOfPods(t, 1, kubelet.Limits{CPUs: cpus})
			if err := k.Unlimited(); err != nil {
				t.Skip(err)
			}
			p := k.start(0, 0, "slots", "PET_NNODES=1")
			p.ends(0, fmt.Sprintf("rank 0 of %d\n", want))
		})
	}
}

// glutton takes memory without end on rank 1, and waits for it on rank 0.
func glutton() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := hvd.InitContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for all := [][]byte{}; hvd.Rank() == 1; {
		p := make([]byte, 1<<20)
		for i := range p {
			p[i] = byte(i)
		}
		all = append(all, p)
	}
	if err := hvd.Allreduce(ctx, "sum", []int64{1}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

// A rank that the kernel kills at its container's memory limit is named, to the ranks of other pods and to the user.
func TestPodOutOfMemory(t *testing.T) {
	t.Parallel()
	k := newJobOfPods(t, 2, kubelet.Limits{CPUs: 1, Memory: 128 << 20})
	if err := k.Unlimited(); err != nil {
		t.Skip(err)
	}
	first := k.start(0, 0, "glutton", "PET_NNODES=2")
	k.Ready("train-0", 0)
	second := k.start(1, 1, "glutton", "PET_NNODES=2")
	first.ends(137, `root cause: rank 1 on host train-1 \(pid \d+\) was killed by signal 9 \(SIGKILL\)`)
	second.ends(137)
}

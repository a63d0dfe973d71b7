package chaos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/kubelet"
	"github.com/gorovod/gorovod/test/output"
)

var deletions = flag.Int("chaos.pods", 6, "how many pods TestPodDeletions deletes")

const (
	podsNeeded, podsWanted = 2, 4
	// podGrace is the grace period of a pod that is drained.
	podGrace = 3 * time.Second
	// podMemory is more than the launcher and the worker of a pod need.
	podMemory = 512 << 20
	// aim is how long a deletion waits for the wanted phase.
	aim = 2 * time.Second
)

// podLimits leave a pod one slot.
var podLimits = kubelet.Limits{CPUs: 1, Memory: podMemory}

// TestPodDeletions deletes pods of an elastic Job, also pod 0, by SIGKILL or by a drain. Each is deleted in a phase of
// its worker: in a step, in a commit, or between two worlds. Other pods replace them, with the same name and number or
// with new ones. After each deletion the job makes a step again, and no commit is ever lost.
//
//	go test ./test/chaos -run TestPodDeletions -chaos.pods 100 -timeout 30m -v
func TestPodDeletions(t *testing.T) {
	k := newController(t, theSeed(t))
	for i := range podsWanted {
		k.start(i)
	}
	k.await("all pods train", func() bool { return k.full(time.Time{}) })
	began := time.Now()
	for len(k.deleted) < *deletions {
		k.delete()
	}
	k.await("all pods train again", func() bool { return k.full(k.deleted[len(k.deleted)-1].at) })
	t.Logf("%d deletions in %.0f s", len(k.deleted), time.Since(began).Seconds())
	k.finish()
	k.report()
}

// podsKnown is how long the name server keeps what it answers, be it that a pod's name does not exist.
const podsKnown = time.Second

// controller starts and ends the pods of a Job. They know pod 0 by its name alone, which leads to another address with
// each pod 0, and is known only a moment after the pod has started.
type controller struct {
	*job
	cluster *kubelet.Cluster
	pods    map[int]*pod // the pods of the job, by number
	started []*pod
	next    int // the first number that no pod has had
	deleted []deletion
	torn    int // the number of torn checkpoints
}

// pod is one pod: a horovodrun.
type pod struct {
	index, node int
	name        string
	phases      string // the file with its worker's phase
	ready       *time.Timer
	cmd         *exec.Cmd
	out         output.Buffer
	done        chan struct{}
}

// deletion describes a deletion of a pod.
type deletion struct {
	pod   string
	how   string // "killed" or "drained"
	phase string
	at    time.Time
	next  time.Duration // from the deletion to the job's next step
}

func newController(t *testing.T, seed uint64) *controller {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	k := &controller{cluster: kubelet.New(t, 2*podsWanted, podLimits, podsKnown), pods: map[int]*pod{},
		next: podsWanted, job: &job{t: t, dir: *keep, bin: bin, done: make(chan struct{}),
			rng: rand.New(rand.NewPCG(seed, 0)), known: map[string]*journal{}}}
	if err := k.cluster.Unlimited(); err != nil {
		t.Logf("the pods have no limits: %v", err)
	}
	if k.dir == "" {
		k.dir = t.TempDir()
	}
	for _, name := range []string{"journals", "tmp", "checkpoints", "phases"} {
		if err := os.MkdirAll(filepath.Join(k.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(k.dir, "secret"), []byte(strings.Repeat("0123456789abcdef", 4)),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range k.started {
			p.cmd.Process.Kill()
			<-p.done
		}
		for end := time.Now().Add(limit); len(processes(k.mark())) > 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("processes %v are left behind", processes(k.mark()))
				break
			}
		}
		if t.Failed() {
			for _, p := range k.started[max(0, len(k.started)-8):] {
				t.Logf("pod %s:\n%s", p.name, tail(p.out.String(), 40))
			}
		}
	})
	return k
}

// start starts a pod with that number, on a machine without a pod.
func (k *controller) start(index int) {
	k.t.Helper()
	node := k.rng.IntN(len(k.cluster.Nodes))
	for !k.free(node) {
		node = (node + 1) % len(k.cluster.Nodes)
	}
	p := &pod{index: index, node: node, name: fmt.Sprintf("train-%d", index), done: make(chan struct{}),
		phases: filepath.Join(k.dir, "phases", fmt.Sprint(len(k.started)))}
	args := []string{"--nnodes", fmt.Sprintf("%d:%d", podsNeeded, podsWanted)}
	if k.cluster.Unlimited() != nil { // otherwise its limit says so
		args = append(args, "--nproc-per-node", "1")
	}
	p.cmd = k.cluster.Command(context.Background(), p.name, node, filepath.Join(k.bin, "horovodrun"),
		append(args, filepath.Join(k.bin, "worker"), "-pause", pause.String(), "-journal",
			filepath.Join(k.dir, "journals"), "-until", filepath.Join(k.dir, "enough"))...)
	p.cmd.Env = append(os.Environ(), k.mark(), "HOROVOD_DYNAMIC_PROCESS_SETS=1", "TMPDIR="+filepath.Join(k.dir, "tmp"),
		"GOROVOD_SECRET_FILE="+filepath.Join(k.dir, "secret"), fmt.Sprint("JOB_COMPLETION_INDEX=", index),
		"GOROVOD_CHECKPOINT_DIR="+filepath.Join(k.dir, "checkpoints"), "GOROVOD_HEARTBEAT_SECONDS=5",
		"GOROVOD_CHAOS_PHASE="+p.phases)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	p.ready = time.AfterFunc(time.Duration(k.rng.IntN(300))*time.Millisecond, func() { k.cluster.Ready(p.name, node) })
	k.pods[index] = p
	k.started = append(k.started, p)
}

// free reports whether nothing runs on a machine.
func (k *controller) free(node int) bool {
	return !slices.ContainsFunc(slices.Collect(maps.Values(k.pods)), func(p *pod) bool { return p.node == node }) &&
		len(k.cluster.Nodes[node].Processes()) == 0
}

// full reports whether all pods train in a world that has begun after a moment.
func (k *controller) full(after time.Time) bool {
	n := 0
	for _, w := range k.journals() {
		if !w.over && w.size == podsWanted && len(w.steps) > 0 && w.steps[len(w.steps)-1].After(after) {
			n++
		}
	}
	return n == podsWanted
}

// phase is the current phase of a pod's worker, or its last one.
func (p *pod) phase() string {
	text, _ := os.ReadFile(p.phases)
	switch string(text) {
	case "s":
		return "in a step"
	case "c":
		return "in a commit"
	case "r":
		return "between worlds"
	}
	return "starting"
}

// delete deletes a pod in a random phase, or two pods: the second one while the job forms a new world.
func (k *controller) delete() {
	k.t.Helper()
	wanted := []string{"in a step", "in a commit", "between worlds"}[k.rng.IntN(3)]
	indices := slices.Sorted(maps.Keys(k.pods))
	k.rng.Shuffle(len(indices), func(i, j int) { indices[i], indices[j] = indices[j], indices[i] })
	victims := []int{indices[0]}
	if wanted == "between worlds" {
		k.end(indices[1], "", "killed")
		victims = append(victims, indices[1])
	}
	how := "killed"
	if k.rng.IntN(2) == 0 {
		how = "drained"
	}
	k.end(indices[0], wanted, how)
	for _, index := range victims {
		time.Sleep(time.Duration(k.rng.IntN(300)) * time.Millisecond)
		if index > 0 && k.rng.IntN(4) == 0 {
			index = k.next
			k.next++
		}
		k.start(index)
	}
	for i := len(k.deleted) - len(victims); i < len(k.deleted); i++ {
		d := &k.deleted[i]
		k.await(fmt.Sprintf("a step after %s was %s %s", d.pod, d.how, d.phase), func() bool {
			for _, w := range k.journals() {
				for _, at := range w.steps {
					if at.After(d.at) && (d.next == 0 || at.Sub(d.at) < d.next) {
						d.next = at.Sub(d.at)
					}
				}
			}
			return d.next > 0
		})
	}
	if last := k.deleted[len(k.deleted)-1].at; k.rng.IntN(2) == 0 {
		k.await("all pods train again", func() bool { return k.full(last) })
	}
}

// end ends a pod as soon as its worker is in the wanted phase, or after a while in any. An empty phase wants none.
func (k *controller) end(index int, wanted, how string) {
	p := k.pods[index]
	pids := k.cluster.Nodes[p.node].Processes()
	slices.Reverse(pids) // the worker before those that watch it
	for end := time.Now().Add(aim); wanted != "" && p.phase() != wanted && time.Now().Before(end); {
	}
	d := deletion{pod: p.name, how: how, phase: p.phase(), at: time.Now()}
	if how == "drained" {
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(podGrace):
		}
	}
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	p.cmd.Process.Kill() // the pod may not be inside its machine yet
	<-p.done
	k.await("nothing of the pod is left", func() bool {
		left := k.cluster.Nodes[p.node].Processes()
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(left) == 0
	})
	p.ready.Stop()
	k.cluster.Gone(p.name, p.node)
	if index == 0 {
		k.tear()
	}
	if how == "killed" {
		d.phase = p.phase() // the exact phase in which it was killed
	}
	delete(k.pods, index)
	k.deleted = append(k.deleted, d)
}

// tear leaves half a checkpoint that claims to be newer than all others, as a disk may after a crash.
func (k *controller) tear() {
	names, err := filepath.Glob(filepath.Join(k.dir, "checkpoints", "commit-*.checkpoint"))
	if err != nil || len(names) == 0 {
		return
	}
	slices.Sort(names)
	newest := names[len(names)-1]
	text, err := os.ReadFile(newest)
	if err != nil {
		return // a worker of the last world has just removed it
	}
	var n int64
	if _, err := fmt.Sscanf(filepath.Base(newest), "commit-%d.checkpoint", &n); err != nil {
		k.t.Fatal(err)
	}
	torn := filepath.Join(k.dir, "checkpoints", fmt.Sprintf("commit-%019d.checkpoint", n+1))
	if err := os.WriteFile(torn, text[:len(text)/2], 0o600); err != nil {
		k.t.Fatal(err)
	}
	k.torn++
}

// finish lets the training come to its end, and checks it.
func (k *controller) finish() {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, "enough"), nil, 0o600); err != nil {
		k.t.Fatal(err)
	}
	for _, index := range slices.Sorted(maps.Keys(k.pods)) {
		p := k.pods[index]
		select {
		case <-p.done:
		case <-time.After(limit):
			k.t.Fatalf("pod %s has not ended %v after the last deletion", p.name, limit)
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			k.t.Errorf("pod %s has ended with code %d", p.name, code)
		}
	}
	for _, p := range k.started {
		if text := p.out.String(); strings.Contains(text, "VIOLATION") {
			k.t.Errorf("ranks differ: %s", tail(text, 5))
		}
	}
	k.check()
	k.nothingLost()
}

// nothingLost checks that no world began from an older commit than was made on all ranks before.
func (k *controller) nothingLost() {
	var held []moment
	for _, w := range k.all {
		held = append(held, w.held...)
	}
	slices.SortFunc(held, func(a, b moment) int { return a.at.Compare(b.at) })
	newest := make([]int64, len(held)) // the newest up to each
	for i, h := range held {
		if newest[i] = h.commit; i > 0 {
			newest[i] = max(h.commit, newest[i-1])
		}
	}
	for _, w := range k.all {
		for _, b := range w.begun {
			i, _ := slices.BinarySearchFunc(held, b.at, func(h moment, at time.Time) int { return h.at.Compare(at) })
			if i > 0 && newest[i-1] > b.commit {
				k.t.Errorf("%s began from commit %d although commit %d had been made", w.name, b.commit, newest[i-1])
			}
		}
	}
	k.t.Logf("%d times a rank held a commit that all had; none was lost, with %d torn checkpoints", len(held),
		k.torn)
}

// report logs how long the job took to go on, by phase and kind of deletion.
func (k *controller) report() {
	groups := map[string][]time.Duration{}
	for _, d := range k.deleted {
		who := "another pod"
		if d.pod == "train-0" {
			who = "pod 0"
		}
		for _, key := range []string{d.phase, fmt.Sprintf("%s %s", who, d.how), "all"} {
			groups[key] = append(groups[key], d.next)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		all := groups[key]
		slices.Sort(all)
		k.t.Logf("%-22s %3d deletions; to the next step: median %v, at most %v", key, len(all),
			all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
}

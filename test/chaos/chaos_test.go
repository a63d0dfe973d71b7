// Package chaos trains elastically while random processes are killed or stopped and
// hosts come and go. It checks that the result is the same as without these faults.
//
//	go test ./test/chaos -chaos.for 1h -chaos.mean 2s -timeout 2h
package chaos

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/output"
)

var (
	duration = flag.Duration("chaos.for", 12*time.Second, "how long faults are injected")
	mean     = flag.Duration("chaos.mean", 600*time.Millisecond, "mean time between two faults")
	seed     = flag.Uint64("chaos.seed", 0, "seed; 0: by the time")
	pause    = flag.Duration("chaos.pause", 2*time.Millisecond, "what a step of the training takes besides")
	keep     = flag.String("chaos.keep", "", "directory in which journals and output stay")
)

const (
	// limit is how long the job may take to end after the last fault.
	limit = 2 * time.Minute
	// stalled is the longest time without a commit, whatever happens: several times the time
	// after which a worker that is stopped or cut off is given up.
	stalled = 2 * time.Minute
)

// programs builds launcher and worker.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "gorovod-chaos-"); err != nil {
		return "", err
	}
	for name, pkg := range map[string]string{"horovodrun": "../../cmd/gorovod", "worker": "./worker"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	if flag.Parse(); testing.Short() {
		return // chaos takes too long for -short
	}
	code := m.Run()
	if dir, _ := programs(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// job is a training under way.
type job struct {
	t      *testing.T
	dir    string
	bin    string
	cmd    *exec.Cmd
	out    output.Buffer
	done   chan struct{}
	rng    *rand.Rand
	faults map[string]int
	kills  []time.Time
	risks
	offered []string // what the discovery script prints

	all   []*journal
	known map[string]*journal
	last  time.Time // of any worker's newest commit
}

// mark is in the environment of the launcher and of all workers.
func (j *job) mark() string { return "GOROVOD_CHAOS_JOB=" + j.dir }

// local makes a command of this host.
func local(name string, args ...string) *exec.Cmd { return exec.Command(name, args...) }

// start starts a job on hosts that are addresses of this host, two by default.
func start(t *testing.T, seed uint64, args, env []string, hosts ...string) *job {
	if hosts == nil {
		hosts = []string{"127.0.0.1:4", "127.0.0.2:4"}
	}
	return startOn(t, local, seed, args, env, hosts...)
}

// startOn starts a job whose launcher runs by command.
func startOn(t *testing.T, command func(name string, args ...string) *exec.Cmd, seed uint64, args, env []string,
	hosts ...string) *job {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, dir: *keep, bin: bin, done: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 0)),
		faults: map[string]int{}, risks: newRisks(), known: map[string]*journal{}, last: time.Now()}
	if j.dir == "" {
		j.dir = t.TempDir()
	} else {
		j.dir = filepath.Join(j.dir, t.Name())
	}
	for _, dir := range []string{"journals", "tmp"} {
		if err := os.MkdirAll(filepath.Join(j.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	j.hosts(hosts...)
	j.cmd = command(filepath.Join(bin, "horovodrun"), append(args, "--verbose", "--prefix-output-with-timestamp",
		"--host-discovery-script", "cat "+filepath.Join(j.dir, "hosts"), filepath.Join(bin, "worker"), "-pause",
		pause.String(), "-journal", filepath.Join(j.dir, "journals"), "-until", filepath.Join(j.dir, "enough"))...)
	j.cmd.Env = append(append(os.Environ(), j.mark(), "HOROVOD_DYNAMIC_PROCESS_SETS=1", "TMPDIR="+filepath.Join(j.dir,
		"tmp")), env...)
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shared := sharedMemory()
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		j.cmd.Wait()
		close(j.done)
	}()
	t.Cleanup(func() {
		j.cmd.Process.Kill()
		<-j.done
		j.nothingLeft(shared)
		if *keep != "" {
			os.WriteFile(filepath.Join(j.dir, "output"), []byte(j.out.String()), 0o600)
		}
		if t.Failed() {
			t.Logf("output:\n%s", tail(j.out.String(), 100))
		}
	})
	return j
}

// sharedMemory lists what is in /dev/shm that has a name of gorovod's.
func sharedMemory() []string {
	names, _ := filepath.Glob("/dev/shm/*orovod*")
	return names
}

// nothingLeft checks that the job has left no process, shared memory or file behind.
func (j *job) nothingLeft(shared []string) {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		left := processes(j.mark())
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			for _, pid := range left {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				j.t.Errorf("process %d is left behind: %q", pid, line)
				syscall.Kill(pid, syscall.SIGKILL)
			}
			break
		}
	}
	for _, name := range sharedMemory() {
		if !slices.Contains(shared, name) {
			j.t.Logf("%s has come meanwhile: another job's, or left behind", name)
		}
	}
	files, _ := os.ReadDir(filepath.Join(j.dir, "tmp"))
	for _, f := range files {
		// Except the output of workers whose agent was killed.
		if ok, _ := filepath.Match(fmt.Sprintf("gorovod-%d-worker-*.log", j.cmd.Process.Pid), f.Name()); !ok {
			j.t.Errorf("the file %s is left behind", f.Name())
		}
	}
}

// processes lists the processes that have mark in their environment.
func processes(mark string) (pids []int) {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if env, err := os.ReadFile(filepath.Join("/proc", d.Name(), "environ")); err == nil && bytes.Contains(env,
			append([]byte(mark), 0)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// hosts sets the lines that the discovery script prints from now on.
func (j *job) hosts(lines ...string) {
	j.offered = lines
	name := filepath.Join(j.dir, "hosts")
	if err := os.WriteFile(name+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		j.t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		j.t.Fatal(err)
	}
}

// await waits until f holds.
func (j *job) await(what string, f func() bool) {
	j.t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-j.done:
			j.t.Fatalf("the job has ended with code %d before %s", j.cmd.ProcessState.ExitCode(), what)
		default:
		}
		if time.Now().After(end) {
			j.t.Fatalf("%v have passed without this: %s", limit, what)
		}
	}
}

// wait waits until f holds, whether the job has ended or not.
func (j *job) wait(what string, f func() bool) {
	j.t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			j.t.Fatalf("%v have passed without this: %s", limit, what)
		}
	}
}

// finish lets the training end, and checks its result.
func (j *job) finish() {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir, "enough"), nil, 0o600); err != nil {
		j.t.Fatal(err)
	}
	select {
	case <-j.done:
	case <-time.After(limit):
		j.t.Fatalf("the job has not ended %v after its last fault", limit)
	}
	if code := j.cmd.ProcessState.ExitCode(); code != 0 {
		j.t.Errorf("the job has ended with code %d", code)
	}
	if strings.Contains(j.out.String(), "VIOLATION") {
		j.t.Error("ranks differ")
	}
	j.check()
}

// check reads all journals, and compares them with a run without faults.
func (j *job) check() {
	journals := j.journals()
	var newest int64
	for _, w := range journals {
		newest = max(newest, w.newest)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(j.bin, "worker"), "-steps", fmt.Sprint((newest+1)*5),
		"reference").Output()
	if err != nil {
		j.t.Fatal(err)
	}
	reference := map[int64]string{}
	accuracy := ""
	for line := range strings.Lines(string(out)) {
		var n int64
		var hash string
		if _, err := fmt.Sscan(line, &n, &hash); err != nil {
			fmt.Sscanf(line, "accuracy %s", &accuracy)
			continue
		}
		reference[n] = hash
	}
	finished := 0
	var slowest time.Duration
	for _, w := range journals {
		slowest = max(slowest, w.slowest)
		for n, hash := range w.commits {
			if reference[n] != hash {
				j.t.Errorf("%s: commit %d is %s, without faults it is %s", w.name, n, hash, reference[n])
			}
		}
		for _, undone := range w.undone {
			j.t.Errorf("%s: %s", w.name, undone)
		}
		if w.done != "" {
			finished++
			if w.done != reference[newest] || w.accuracy != accuracy {
				j.t.Errorf("%s has ended with %s and accuracy %s, without faults it is %s and %s", w.name, w.done,
					w.accuracy, reference[newest], accuracy)
			}
		}
		if j.alive(w) {
			j.t.Errorf("%s is left behind", w.name)
		}
	}
	if finished == 0 {
		j.t.Error("no worker has finished")
	}
	j.t.Logf("%d workers, %d commits, %d workers at the end, accuracy %s; faults: %v; the longest time between two "+
		"commits of a worker: %v", len(journals), newest+1, finished, accuracy, j.faults,
		slowest.Round(time.Millisecond))
	if late := j.recoveries(journals); len(late) > 0 {
		slices.Sort(late)
		j.t.Logf("from a kill to the next step of a survivor: median %v, at most %v (%d)", late[len(late)/2],
			late[len(late)-1], len(late))
	}
}

// recoveries are the times from each kill to the first step of the next epoch.
func (j *job) recoveries(journals []*journal) (all []time.Duration) {
	var steps []time.Time
	for _, w := range journals {
		steps = append(steps, w.steps...)
	}
	slices.SortFunc(steps, time.Time.Compare)
	for _, k := range j.kills {
		i, _ := slices.BinarySearchFunc(steps, k, time.Time.Compare)
		if i < len(steps) {
			all = append(all, steps[i].Sub(k).Round(time.Millisecond))
		}
	}
	return all
}

// alive reports whether a worker's process runs. After an hour another program or a later worker may have its pid.
func (j *job) alive(w *journal) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", w.pid))
	return err == nil && !w.over && bytes.HasPrefix(line, []byte(filepath.Join(j.bin, "worker")))
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

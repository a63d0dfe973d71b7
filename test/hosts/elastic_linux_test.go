package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
	"github.com/gorovod/gorovod/test/cluster"
	"github.com/gorovod/gorovod/test/output"
)

// untilVariable names a file. As soon as the file exists, the elastic training ends.
const untilVariable = "GOROVOD_HOSTS_TEST_UNTIL"

func init() { programs["elastic"] = elastic }

// tally is a state: the number of steps that were made.
type tally struct{ steps, saved int64 }

func (s *tally) Save()    { s.saved = s.steps }
func (s *tally) Restore() { s.steps = s.saved }

func (s *tally) Sync(ctx context.Context) error {
	n := []int64{s.steps}
	err := hvd.Broadcast(ctx, "steps", n, 0)
	s.steps = n[0]
	s.Save()
	return err
}

// elastic counts steps, and prints each world in which it does: "worker 2 (pid 77): of 4".
func elastic() int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s := &tally{}
	err := hvd.InitContext(ctx)
	if err == nil {
		err = hvd.RunElastic(ctx, s, func(ctx context.Context, e *hvd.Elastic) error {
			fmt.Printf("worker %s (pid %d): of %d\n", os.Getenv("GOROVOD_ELASTIC_WORKER"), os.Getpid(), hvd.Size())
			for {
				enough := []int64{0}
				if _, err := os.Stat(os.Getenv(untilVariable)); err == nil {
					enough[0] = 1
				}
				if err := hvd.Allreduce(ctx, "enough", enough, hvd.WithOp(hvd.Max)); err != nil || enough[0] == 1 {
					return err
				}
				s.steps++
				time.Sleep(2 * time.Millisecond)
				if err := e.Commit(ctx); err != nil {
					return err
				}
			}
		})
	}
	switch {
	case errors.Is(err, hvd.ErrDismissed):
		fmt.Println("dismissed")
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	hvd.Shutdown()
	fmt.Println("done")
	return 0
}

// trial is an elastic job under way.
type trial struct {
	*job
	c     *testCluster
	said  *output.Buffer
	done  chan struct{}
	mark  string
	after int // await has seen the output before this place
}

// train starts an elastic job. The environment of its workers has the job's mark.
func (c *testCluster) train(env []string, args ...string) *trial {
	c.t.Helper()
	r := &trial{c: c, said: &output.Buffer{}, done: make(chan struct{}), mark: "HOSTS_TEST_MARK=" + c.t.Name() +
		strconv.Itoa(os.Getpid())}
	env = append(does("elastic", r.mark, "GOROVOD_HEARTBEAT_SECONDS=5", untilVariable+"="+c.File("enough")), env...)
	r.job = c.run(env, append(args, self())...)
	r.Stdout, r.Stderr = r.said, r.said
	if err := r.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		r.Wait()
	}()
	c.t.Cleanup(func() {
		r.Process.Kill()
		<-r.done
	})
	return r
}

// lines asks for n lines that match a pattern.
type lines struct {
	pattern string
	n       int
}

// await waits until n lines match, after the lines of the last await.
func (r *trial) await(pattern string, n int) {
	r.t.Helper()
	r.awaitAll(lines{pattern, n})
}

// awaitAll is await for lines that may come in any order.
func (r *trial) awaitAll(all ...lines) {
	r.t.Helper()
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		text := r.said.String()[r.after:]
		found, last := 0, 0
		for _, l := range all {
			if at := regexp.MustCompile(l.pattern).FindAllStringIndex(text, l.n); len(at) == l.n {
				found++
				last = max(last, at[l.n-1][1])
			}
		}
		if found == len(all) {
			r.after += last
			return
		}
		select {
		case <-r.done:
			r.t.Fatalf("it has ended before %v:\n%s", all, r.said)
		default:
		}
		if time.Now().After(end) {
			r.t.Fatalf("not all of %v has come:\n%s", all, text)
		}
	}
}

// on returns the pid of a worker on a host.
func (r *trial) on(host int) int {
	r.t.Helper()
	for _, pid := range r.c.Hosts[host].Processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if strings.HasPrefix(string(line), self()) && bytes.Contains(env, []byte("GOROVOD_ELASTIC_WORKER=")) {
			return pid
		}
	}
	r.t.Fatalf("no worker runs on host %d", host)
	return 0
}

// finish ends the training. All workers that are left must come to its end.
func (r *trial) finish(workers int) {
	r.t.Helper()
	r.c.Write("enough", "")
	r.await(`>:done\n`, workers)
	select {
	case <-r.done:
	case <-time.After(30 * time.Second):
		r.t.Fatalf("the launcher does not end:\n%s", r.said)
	}
	if code := r.ProcessState.ExitCode(); code != 0 {
		r.t.Errorf("exit code %d:\n%s", code, r.said)
	}
}

// With fixed hosts, a worker and an agent are killed, and a wire is cut. The rest goes on.
func TestElasticHostsAreLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4)
	r := c.train(nil, "-np", "4", "--min-np", "1", "-H", "10.78.0.1:1,h1:1,h2:1,h3:1", "--verbose")
	r.await("worker [0-3] .*: of 4", 4)
	syscall.Kill(r.on(1), syscall.SIGKILL)
	r.await("worker [023] .*: of 3", 3)
	for _, pid := range cluster.Marked("", " agent") { // of the agents of all tests, the one on h2
		for _, there := range c.Hosts[2].Processes() {
			if pid == there {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	r.await("worker [03] .*: of 2", 2)
	if !strings.Contains(r.said.String(), "host h2 is not used again: it cannot be reached") {
		t.Errorf("it does not name the host:\n%s", r.said)
	}
	c.Hosts[3].Link(t, "down")
	r.await("worker 0 .*: of 1", 1)
	c.Hosts[3].Link(t, "up")
	r.finish(1)
	cluster.NobodyLeft(t, r.mark, 40*time.Second)
}

// With discovered hosts, a job on this host alone grows to other hosts, and shrinks. Workers leave a host that
// is taken away in order. By upstream's rule, the death of a worker costs its host.
func TestElasticHostsAreDiscovered(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	offer := func(lines string) {
		c.Write("offered.new", lines)
		if err := os.Rename(c.File("offered.new"), c.File("offered")); err != nil {
			t.Fatal(err)
		}
	}
	offer("10.78.0.1:1\n")
	r := c.train([]string{"GOROVOD_ELASTIC_BLACKLIST=host"}, "-np", "1", "--min-np", "1", "--host-discovery-script",
		"cat "+c.File("offered"))
	r.await("worker 0 .*: of 1", 1)
	offer("h1:2\n10.78.0.1:1\n") // hosts that are known stay first
	// The hosts may join one after the other.
	r.await("worker [0-2] .*: of 3", 3)
	offer("10.78.0.1:1\nh2:2\n")
	r.awaitAll(lines{">:dismissed\n", 2}, lines{"worker [034] .*: of 3", 3})
	syscall.Kill(r.on(2), syscall.SIGKILL)
	r.awaitAll(lines{"host h2 is not used again .*: a worker of it has failed", 1}, lines{"worker 0 .*: of 1", 1})
	offer("10.78.0.1:1\nh2:2\nh1:1\n")
	r.await("worker [05] .*: of 2", 2)
	r.finish(2)
	cluster.NobodyLeft(t, r.mark, 20*time.Second)
}

// When the launcher is killed, workers on other hosts end, too, and their last words are in files there.
func TestElasticLauncherDies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	late := c.File("late")
	if err := os.Mkdir(late, 0o700); err != nil {
		t.Fatal(err)
	}
	r := c.train([]string{"TMPDIR=" + late}, "-np", "2", "--min-np", "1", "-H", "10.78.0.1:1,h1:1")
	r.await("worker [01] .*: of 2", 2)
	r.Process.Kill()
	<-r.done
	cluster.NobodyLeft(t, r.mark, 20*time.Second)
	for worker := range 2 {
		text := readFile(t, fmt.Sprintf("%s/gorovod-%d-worker-%d.log", late, r.Process.Pid, worker))
		if !strings.Contains(text, "the launcher of this elastic job is gone") {
			t.Errorf("worker %d says: %s", worker, text)
		}
	}
}

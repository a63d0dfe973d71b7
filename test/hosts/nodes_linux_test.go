package hosts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// launchers are the launchers of a job's nodes. Each node is a host of the cluster.
type launchers []*job

// nodes prepares a launcher on each host, with two processes a node. env adds to their environment.
func (c *testCluster) nodes(env []string, command ...string) (all launchers) {
	secret := filepath.Join(c.t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	for i, h := range c.Hosts {
		j := &job{t: c.t, Cmd: h.Command(context.Background(), c.horovodrun, command...)}
		j.WaitDelay = time.Second
		j.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "GOROVOD_SECRET_FILE="+secret,
			fmt.Sprint("PET_NNODES=", len(c.Hosts)), fmt.Sprint("JOB_COMPLETION_INDEX=", i), "PET_NPROC_PER_NODE=2",
			"PET_MASTER_ADDR="+c.Hosts[0].Address, "PET_MASTER_PORT=29400", fmt.Sprint("NODE=", i))
		j.Env = append(j.Env, env...)
		j.Stdout, j.Stderr = &j.stdout, &j.stderr
		all = append(all, j)
	}
	return all
}

// startOthers starts all launchers but node 0's.
func (l launchers) startOthers() {
	for _, j := range l[1:] {
		if err := j.Start(); err != nil {
			j.t.Fatal(err)
		}
	}
}

// expectOthers waits for the ends of all launchers but node 0's, and checks them.
func (l launchers) expectOthers(code int, says ...string) {
	for _, j := range l[1:] {
		stop := time.AfterFunc(time.Minute, func() { j.Process.Signal(syscall.SIGKILL) })
		j.Wait()
		stop.Stop()
		j.ended(code, says...)
	}
}

// A number of processes does not make a job of each node.
func TestNodesWithANumberOfProcesses(t *testing.T) {
	c := newCluster(t, 2)
	l := c.nodes(does("collectives"), "-np", "4", self())
	l.startOthers()
	l[0].expect(0)
	l.expectOthers(0)
	l[0].ranks(4)
}

func TestNodes(t *testing.T) {
	c := newCluster(t, 3)
	env := does("collectives")
	l := c.nodes(env, "-x", "GIVEN=by node 0", "sh", "-c", `echo "on node $NODE, $GIVEN"; exec "$0"`, self())
	l.startOthers()
	l[0].expect(0)
	l.expectOthers(0)
	out := l[0].stdout.String()
	for rank := range 6 {
		for _, text := range []string{
			fmt.Sprintf("[%d]<stdout>:all is right on rank %d of 6, %d of 2 here", rank, rank, rank%2),
			// The other variables may differ from node to node.
			fmt.Sprintf("[%d]<stdout>:on node %d, by node 0", rank, rank/2),
		} {
			if !strings.Contains(out, text) {
				t.Errorf("no %q in:\n%s", text, out)
			}
		}
	}
}

func TestNodesHaveTheJobsExitCode(t *testing.T) {
	c := newCluster(t, 2)
	l := c.nodes(nil, "sh", "-c", `[ $HOROVOD_RANK != 3 ] || exit 7; sleep 30`)
	l.startOthers()
	l[0].expect(7, `root cause: rank 3 on host \S+-node-1 \(pid \d+\) exited with code 7`)
	l.expectOthers(7)
}

func TestNodeIsLost(t *testing.T) {
	c := newCluster(t, 2)
	mark := "GOROVOD_NODES_TEST=" + t.TempDir()
	l := c.nodes(append(does("loop"), mark), self())
	l.startOthers()
	l[0].until("looping", 4)
	// The launcher itself: the cluster's command has become this process.
	l[1].Process.Signal(syscall.SIGKILL)
	l[1].Wait()
	l[0].wait()
	l[0].ended(anyFailure, `root cause: rank \d on host \S+-node-1 \(pid \d+\) is lost with its host: the connection to `+
		`node 1 \(\S+\) was cut short`)
	nobodyLeft(t, mark)
}

func TestNode0IsLost(t *testing.T) {
	c := newCluster(t, 2)
	mark := "GOROVOD_NODES_TEST=" + t.TempDir()
	l := c.nodes(append(does("loop"), mark), self())
	l.startOthers()
	l[0].until("looping", 4)
	l[0].Process.Signal(syscall.SIGKILL)
	l[0].wait()
	l.expectOthers(1, "node 0 is gone, and has not said how the job ended")
	nobodyLeft(t, mark)
}

func TestNodesThatCannotMeet(t *testing.T) {
	c := newCluster(t, 2)
	other := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(other, []byte(strings.Repeat("f", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name         string
		env, options []string // node 1's
		zero, one    string
	}{
		{name: "missing", options: []string{"--help"}, zero: `node 1 \(of 2\) did not come to node 0 in time, at port 29400`},
		{name: "other secret", env: []string{"GOROVOD_SECRET_FILE=" + other}, zero: `did not come`,
			one: `node 0 at \S+:29400 has another secret`},
		{name: "no secret", env: []string{"GOROVOD_SECRET_FILE="}, zero: `did not come`,
			one: `the nodes share no secret .* set GOROVOD_SECRET_FILE`},
		{name: "other count", options: []string{"--nnodes", "3"}, zero: `did not come`,
			one: `node 0 was told that there are 2 nodes, and node 1 that there are 3`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := c.nodes(nil, "--start-timeout", "2", "true")
			l[0].t, l[1].t = t, t
			l[1].Env = append(l[1].Env, tt.env...)
			l[1].Args = append(l[1].Args[:len(l[1].Args)-1], append(tt.options, "true")...)
			l.startOthers()
			l[0].expect(1, tt.zero)
			if tt.one != "" {
				l.expectOthers(anyFailure, tt.one)
			} else {
				l[1].Wait()
			}
		})
	}
	t.Run("node 0 is missing", func(t *testing.T) {
		l := c.nodes(nil, "--start-timeout", "1", "true")
		l[1].t = t
		l.startOthers()
		l.expectOthers(1, `node 0 cannot be reached at 10\.\S+:29400: .*refused`, "--start-timeout")
	})
	t.Run("a node without a process", func(t *testing.T) {
		l := c.nodes(nil, "--nnodes", "2", "-np", "2", "true")
		l[0].t, l[1].t = t, t
		l.startOthers()
		l[0].expect(2, "-np 2 leaves nodes without a process")
		l.expectOthers(1, "node 0 has given up before the job began")
	})
}

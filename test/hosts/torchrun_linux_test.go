package hosts

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/output"
)

// torch returns the Python of the checkout's build. If that has no PyTorch, it skips the test.
func torch(t testing.TB) (python, root string) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "build/python"))
	if err != nil {
		t.Skip("build/python is not there: run make prepare first")
	}
	python = strings.TrimSpace(string(text))
	if out, err := exec.Command(python, "-c", "import torch.distributed.run").CombinedOutput(); err != nil {
		t.Skipf("%s has no torchrun: %s", python, out)
	}
	return python, root
}

// In the torch runtime of Kubeflow Trainer every pod runs `torchrun train.py`, and gets its place from PET_ variables.
// The pods share a mounted secret, but no file system.
func TestTorchrunInPods(t *testing.T) {
	python, root := torch(t)
	c := newCluster(t, 2)
	c.Write("secret", strings.Repeat("0123456789abcdef", 4)+"\n")
	for _, program := range []struct {
		args []string
		says string
	}{
		{[]string{"test/schedulers/place.py"}, "place %d 4 "},
		{[]string{"examples/pytorch_ddp.py", "--epochs", "1"}, "test accuracy"}, // torch.distributed
	} {
		t.Run(filepath.Base(program.args[0]), func(t *testing.T) {
			all := c.trainerPods(t, root, append([]string{python, "-m", "torch.distributed.run"}, program.args...))
			for rank := range 4 {
				want := program.says
				if strings.Contains(want, "%d") {
					want = fmt.Sprintf(want, rank)
				}
				if !strings.Contains(all, want) {
					t.Errorf("there is no %q", want)
				}
			}
			if t.Failed() {
				t.Log(all)
			}
		})
	}
}

// firstAllreduce is a program of one rank: it prints when its first allreduce is done.
const firstAllreduce = `
import sys, time, torch
if sys.argv[1] == "gloo":
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
else:
    import horovod.torch as hvd
    hvd.init()
    hvd.allreduce(torch.ones(1), name="x")
sys.stdout.write("first allreduce at %f\n" % time.time())
if sys.argv[1] == "gloo":
    dist.destroy_process_group()  # gloo's threads may otherwise abort the process at its end
`

// starts are the ways in which two pods start, by the names that the input of BenchmarkStartOfPods has for them. Each
// is a command of a pod that runs the program firstAllreduce, with two ranks.
var starts = map[string]func(root, python, program string) []string{
	"gorovod": func(root, python, program string) []string {
		return []string{filepath.Join(root, "build/horovodrun"), python, program, "gorovod"}
	},
	"torchrun": func(_, python, program string) []string {
		return []string{python, "-m", "torch.distributed.run", program, "gloo"}
	},
}

// BenchmarkStartOfPods starts two pods for each line of its input, which names one of starts, and prints the time until
// all of their four ranks have done the first allreduce. bench/pods_start.py compares the ways by it.
func BenchmarkStartOfPods(b *testing.B) {
	python, root := torch(b)
	var c *testCluster
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		command := starts[lines.Text()]
		if command == nil {
			b.Fatalf("the input has %q, which is no way to start pods", lines.Text())
		}
		if c == nil {
			c = newCluster(b, 2)
			c.Write("secret", strings.Repeat("0123456789abcdef", 4)+"\n")
			c.Write("first.py", firstAllreduce)
		}
		took := c.startPods(root, command(root, python, c.File("first.py")))
		fmt.Printf("took %.6f s\n", took.Seconds())
	}
	if c == nil {
		b.Skip("it has no input: run bench/pods_start.py")
	}
}

// startPods has the pods run the command to its end, and returns the time until the last rank's first allreduce.
func (c *testCluster) startPods(root string, command []string) time.Duration {
	began := time.Now()
	all := c.trainerPods(c.t, root, command)
	lines := regexp.MustCompile(`first allreduce at ([0-9.]+)`).FindAllStringSubmatch(all, -1)
	if c.t.Failed() || len(lines) != 4 {
		c.t.Fatalf("%q: %d ranks of 4 have done their allreduce: %s", command, len(lines), all)
	}
	var last time.Time
	for _, l := range lines {
		seconds, err := strconv.ParseFloat(l[1], 64)
		if err != nil {
			c.t.Fatal(err)
		}
		if at := time.UnixMicro(int64(seconds * 1e6)); at.After(last) {
			last = at
		}
	}
	return last.Sub(began)
}

// trainerPods has each host run the command to its end, as a pod of Kubeflow Trainer's torch runtime does, for two
// processes in each. It returns what they print.
func (c *testCluster) trainerPods(t testing.TB, root string, command []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	var pods sync.WaitGroup
	said := make([]output.Buffer, len(c.Hosts))
	for i, h := range c.Hosts {
		home := t.TempDir()
		cmd := c.Command(ctx, i, command[0], command[1:]...)
		cmd.Dir, cmd.WaitDelay = root, time.Second
		cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "OMP_NUM_THREADS=1",
			"PYTHONPATH="+filepath.Join(root, "python"), "GOROVOD_SECRET_FILE="+c.File("secret"),
			fmt.Sprint("PET_NNODES=", len(c.Hosts)), "PET_NPROC_PER_NODE=2", fmt.Sprint("PET_NODE_RANK=", i),
			"PET_MASTER_ADDR="+c.Hosts[0].Address, "PET_MASTER_PORT=29400",
			// Without these, torchrun's defaults fail in some Pythons of this PyTorch.
			"PET_REDIRECTS=1", "PET_TEE=1",
			// No name service knows the hosts' names.
			"PET_LOCAL_ADDR="+h.Address, "GLOO_SOCKET_IFNAME="+h.Interface)
		cmd.Stdout, cmd.Stderr = &said[i], &said[i]
		pods.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Errorf("pod %d: %v", i, err)
			}
		})
	}
	pods.Wait()
	var all string
	for i := range said {
		all += said[i].String()
	}
	return all
}

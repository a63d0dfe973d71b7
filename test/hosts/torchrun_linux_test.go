package hosts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
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
			var pods sync.WaitGroup
			said := make([]said, 2)
			for i := range said {
				home := t.TempDir()
				ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
				defer cancel()
				args := append([]string{"-m", "torch.distributed.run"}, program.args...)
				cmd := c.Command(ctx, i, python, args...)
				cmd.Dir, cmd.WaitDelay = root, time.Second
				cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "OMP_NUM_THREADS=1",
					"PYTHONPATH="+filepath.Join(root, "python"), "GOROVOD_SECRET_FILE="+c.File("secret"),
					"PET_NNODES=2", "PET_NPROC_PER_NODE=2", fmt.Sprint("PET_NODE_RANK=", i),
					"PET_MASTER_ADDR="+c.Hosts[0].Address, "PET_MASTER_PORT=29400",
					// Without these, torchrun's defaults fail in some Pythons of this PyTorch.
					"PET_REDIRECTS=1", "PET_TEE=1",
					// No name service knows the hosts' names.
					"PET_LOCAL_ADDR="+c.Hosts[i].Address, "GLOO_SOCKET_IFNAME="+c.Hosts[i].Interface)
				cmd.Stdout, cmd.Stderr = &said[i], &said[i]
				pods.Go(func() {
					if err := cmd.Run(); err != nil {
						t.Errorf("pod %d: %v", i, err)
					}
				})
			}
			pods.Wait()
			all := said[0].String() + said[1].String()
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
`

// BenchmarkStartOfPods measures the time from the start of two pods to the end of the first allreduce on all of their
// four ranks. It alternates between horovodrun with a launcher on each node and torchrun's static rendezvous with gloo.
//
//	go test ./test/hosts -run - -bench StartOfPods -benchtime 7x
func BenchmarkStartOfPods(b *testing.B) {
	python, root := torch(b)
	c := newCluster(b, 2)
	c.Write("secret", strings.Repeat("0123456789abcdef", 4)+"\n")
	c.Write("first.py", firstAllreduce)
	took := map[string][]time.Duration{}
	run := func(name string, command ...string) {
		began, last := time.Now(), time.Time{}
		var pods sync.WaitGroup
		said := make([]said, len(c.Hosts))
		for i, h := range c.Hosts {
			cmd := c.Command(b.Context(), i, command[0], command[1:]...)
			cmd.Dir, cmd.WaitDelay = root, time.Second
			cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONPATH="+filepath.Join(root, "python"),
				"GOROVOD_SECRET_FILE="+c.File("secret"), "PET_NNODES=2", "PET_NPROC_PER_NODE=2",
				fmt.Sprint("PET_NODE_RANK=", i), "PET_MASTER_ADDR="+c.Hosts[0].Address, "PET_MASTER_PORT=29400",
				"PET_REDIRECTS=1", "PET_TEE=1", "GLOO_SOCKET_IFNAME="+h.Interface)
			cmd.Stdout, cmd.Stderr = &said[i], &said[i]
			pods.Go(func() {
				if err := cmd.Run(); err != nil {
					b.Errorf("%s: %v: %s", name, err, &said[i])
				}
			})
		}
		pods.Wait()
		lines := regexp.MustCompile(`first allreduce at ([0-9.]+)`).FindAllStringSubmatch(
			said[0].String()+said[1].String(), -1)
		if len(lines) != 4 {
			b.Fatalf("%s: %d ranks have done it: %s%s", name, len(lines), &said[0], &said[1])
		}
		for _, l := range lines {
			seconds, err := strconv.ParseFloat(l[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			if at := time.UnixMicro(int64(seconds * 1e6)); at.After(last) {
				last = at
			}
		}
		took[name] = append(took[name], last.Sub(began))
	}
	for b.Loop() {
		run("horovodrun", c.horovodrun, python, c.File("first.py"), "gorovod")
		run("torchrun", python, "-m", "torch.distributed.run", c.File("first.py"), "gloo")
	}
	for name, all := range took {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2].Seconds(), "s/"+name)
		b.ReportMetric(all[len(all)-1].Seconds(), "s-most/"+name)
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	programs "github.com/gorovod/gorovod/bench"
	"github.com/gorovod/gorovod/bench/hosts/network"
	"github.com/gorovod/gorovod/internal/tools/bench"
)

// jobs start the contenders' jobs on the hosts of a cell. Each launcher runs on the first host, and reaches the others
// as it would by ssh.
type jobs struct {
	o       *options
	cell    cell
	network *network.Network
	dir     string
	gorovod string
	base    string // the gorovod of the other checkout
	torch   string // the program of a Python rank
	openmpi string // the program of a C rank
	mpirun  string
}

// newJobs checks that everything is there that the contenders need, before any of them starts.
func newJobs(ctx context.Context, o *options, dir string) (*jobs, error) {
	j := &jobs{o: o, dir: dir, torch: filepath.Join(dir, "rank.py"), openmpi: filepath.Join(dir, "rank")}
	var err error
	if j.gorovod, err = filepath.Abs(o.gorovod); err != nil {
		return nil, err
	}
	needed := []string{j.gorovod, launcher(j.gorovod)}
	if o.base != "" {
		if o.base, err = filepath.Abs(o.base); err != nil {
			return nil, err
		}
		j.base = filepath.Join(o.base, "build/gorovod")
		needed = append(needed, j.base, launcher(j.base))
	}
	for _, file := range needed {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("%w (make build makes it)", err)
		}
	}
	if err := os.WriteFile(j.torch, programs.Torch, 0o600); err != nil {
		return nil, err
	}
	if j.o.wants(peerPython) || j.o.wants(peerAgain) || j.o.wants(peerGloo) {
		out, err := exec.CommandContext(ctx, o.python, "-c", "import torch, horovod.torch").CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s cannot import torch and horovod.torch (-python, PYTHONPATH): %s", o.python, out)
		}
	}
	if !o.wants(peerOpenMPI) {
		return j, nil
	}
	mpicc, err := exec.LookPath(o.mpicc)
	if err != nil {
		return nil, fmt.Errorf("%w (Debian: libopenmpi-dev; -peers leaves contenders out)", err)
	}
	j.mpirun = filepath.Join(filepath.Dir(mpicc), "mpirun")
	source := j.openmpi + ".c"
	if err := os.WriteFile(source, programs.OpenMPI, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, mpicc, "-O2", "-o", j.openmpi, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", mpicc, err, out)
	}
	return j, nil
}

func (o *options) wants(peer string) bool {
	for _, p := range o.peers {
		if p == peer {
			return true
		}
	}
	return false
}

// launcher is the horovodrun beside a gorovod.
func launcher(gorovod string) string { return filepath.Join(filepath.Dir(gorovod), "horovodrun") }

// labels are the contenders' names in tables.
var labels = map[string]string{peerPython: "gorovod, Python", peerAgain: "the same again (A/A)", peerGo: "gorovod, Go",
	peerGloo: "gloo", peerOpenMPI: "Open MPI, C", peerBase: "base, Python", peerBaseGo: "base, Go"}

// entrant is a contender of the cell.
func (j *jobs) entrant(peer string) bench.Entrant {
	e := bench.Entrant{Name: peer, About: labels[peer]}
	e.Command = func(ctx context.Context, socket, floats string) *exec.Cmd {
		switch peer {
		case peerGo:
			return j.horovodrun(ctx, j.gorovod, append([]string{j.gorovod}, bench.WorkerCommand(socket, floats)...)...)
		case peerBaseGo:
			return j.horovodrun(ctx, j.base, append([]string{j.base}, bench.WorkerCommand(socket, floats)...)...)
		case peerBase:
			c := j.horovodrun(ctx, j.base, j.o.python, j.torch, socket, floats, "hvd")
			c.Env = append(c.Env, "PYTHONPATH="+filepath.Join(j.o.base, "python"))
			return c
		case peerGloo:
			return j.horovodrun(ctx, j.gorovod, j.o.python, j.torch, socket, floats, "gloo", socket+".meeting")
		case peerOpenMPI:
			return j.mpi(ctx, j.openmpi, socket, floats)
		}
		return j.horovodrun(ctx, j.gorovod, j.o.python, j.torch, socket, floats, "hvd")
	}
	return e
}

// horovodrun starts ranks on all hosts, by the horovodrun beside gorovod.
func (j *jobs) horovodrun(ctx context.Context, gorovod string, command ...string) *exec.Cmd {
	var hosts []string
	for _, h := range j.network.Hosts {
		hosts = append(hosts, fmt.Sprintf("%s:%d", h.Name, j.cell.Ranks))
	}
	c := j.network.Hosts[0].Command(ctx, launcher(gorovod), append([]string{"-np",
		fmt.Sprint(j.cell.Hosts * j.cell.Ranks), "-H", strings.Join(hosts, ","), "--start-timeout", "60",
		"--grace-period", "1", "--"}, command...)...)
	c.Env = append(os.Environ(), "GOROVOD_SSH="+j.network.Shell(), "GLOO_SOCKET_IFNAME="+network.Interface)
	return c
}

// mpi starts ranks by Open MPI's mpirun, which horovodrun runs on the first host: so nothing of it is left if this
// process is killed. Ranks reach those of other hosts over TCP, and those of their own by memory. No rank is bound to
// a core, because the other contenders' ranks are not bound either.
func (j *jobs) mpi(ctx context.Context, command ...string) *exec.Cmd {
	var hosts []string
	for _, h := range j.network.Hosts {
		hosts = append(hosts, fmt.Sprintf("%s:%d", h.Address, j.cell.Ranks))
	}
	args := []string{"-np", "1", "-H", j.network.Hosts[0].Name + ":1", "--grace-period", "1", "--", j.mpirun,
		"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-H", strings.Join(hosts, ","), "--mca",
		"plm_rsh_agent", j.network.Shell(), "--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp", "--mca",
		"btl_tcp_if_include", network.Subnet, "--mca", "oob_tcp_if_include", network.Subnet,
		"-n", fmt.Sprint(j.cell.Hosts * j.cell.Ranks)}
	c := j.network.Hosts[0].Command(ctx, launcher(j.gorovod), append(args, command...)...)
	c.Env = append(os.Environ(), "GOROVOD_SSH="+j.network.Shell())
	return c
}

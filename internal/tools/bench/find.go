package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	programs "github.com/gorovod/gorovod/bench"
)

// allModes are the modes of a contender with asynchronous and grouped calls.
var allModes = []string{modeAllreduce, modeAsync, modeGrouped, modeSubmit}

// pythonProbe prints, as JSON, which packages a Python has.
const pythonProbe = `
import json, os
import torch
have = {"torch": torch.__version__}
try:
    import horovod, horovod.torch as hvd
    have["horovod"] = getattr(horovod, "__version__", "")
    have["controllers"] = [name for name, built in (("gloo", hvd.gloo_built), ("mpi", hvd.mpi_built)) if built()]
except Exception as error:
    have["error"] = repr(error)
print(json.dumps(have))
`

// pythonHas is the output of pythonProbe.
type pythonHas struct {
	Torch       string
	Horovod     string
	Controllers []string
	Error       string // why horovod.torch cannot be imported
}

func probe(ctx context.Context, python string, env []string) (have pythonHas, err error) {
	cmd := exec.CommandContext(ctx, python, "-c", pythonProbe)
	cmd.Env = env
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
		err = errors.New(lines[len(lines)-1])
	}
	if err == nil {
		err = json.Unmarshal(out, &have)
	}
	return have, err
}

// startAll finds the wanted contenders and starts their jobs, with their files in dir. It calls skip for a contender
// that is not found and that the user does not insist on. On an error, it still returns what was started.
func (o *options) startAll(ctx context.Context, dir string, floats int, show io.Writer,
	skip func(name, why string)) (all []*contender, err error) {
	add := func(c *contender, err error) error {
		if err == nil {
			all = append(all, c)
		}
		return err
	}
	last := strconv.Itoa(floats)
	c, err := newContender(dir, PeerGo, "this engine from Go", o.NumProc, append(allModes, modeAdd, modeTCP,
		modeWake)...)
	if add(c, err) != nil {
		return all, err
	}
	if err := c.launch(ctx, o.NumProc, show, "/proc/self/exe", "bench", workerArgument, c.socket(), last); err != nil {
		return all, err
	}
	for _, start := range []struct {
		names []string
		start func() error
	}{
		{[]string{peerPython, peerGloo}, func() error { return o.startTorch(ctx, dir, last, show, add, skip) }},
		{[]string{peerOpenMPI}, func() error { return o.startOpenMPI(ctx, dir, last, show, add) }},
		{[]string{peerHorovod}, func() error { return o.startHorovod(ctx, dir, last, show, add) }},
	} {
		wanted, insisted := false, false
		for _, name := range start.names {
			wanted, insisted = wanted || o.wants(name), insisted || o.insists(name)
		}
		if !wanted {
			continue
		}
		if err := start.start(); err != nil {
			if insisted || ctx.Err() != nil {
				return all, err
			}
			skip(strings.Join(start.names, ", "), err.Error())
		}
	}
	return all, nil
}

// startTorch starts the contenders of this engine's Python.
func (o *options) startTorch(ctx context.Context, dir, floats string, show io.Writer, add func(*contender, error) error,
	skip func(name, why string)) error {
	python := o.Python
	if python == "" {
		python = "python3"
	}
	have, err := probe(ctx, python, os.Environ())
	if err != nil {
		return fmt.Errorf("%s cannot import torch (--python says which to use): %w", python, err)
	}
	program := filepath.Join(dir, "torch_rank.py")
	if err := os.WriteFile(program, programs.Torch, 0o600); err != nil {
		return err
	}
	switch {
	case !o.wants(peerPython):
	case have.Horovod == "" && have.Error != "":
		err := fmt.Errorf("%s cannot import horovod.torch: %s", python, have.Error)
		if o.insists(peerPython) {
			return err
		}
		skip(peerPython, err.Error())
	default:
		c, err := newContender(dir, peerPython, "this engine from horovod.torch "+have.Horovod+", torch "+have.Torch,
			o.NumProc, allModes...)
		if add(c, err) != nil {
			return err
		}
		if err := c.launch(ctx, o.NumProc, show, python, program, c.socket(), floats, "hvd"); err != nil {
			return err
		}
	}
	if !o.wants(peerGloo) {
		return nil
	}
	c, err := newContender(dir, peerGloo, "torch.distributed "+have.Torch+", gloo", o.NumProc, modeAllreduce, modeAsync)
	if add(c, err) != nil {
		return err
	}
	return c.launch(ctx, o.NumProc, show, python, program, c.socket(), floats, "gloo", filepath.Join(dir, "meeting"))
}

// startOpenMPI compiles and starts the C contender.
func (o *options) startOpenMPI(ctx context.Context, dir, floats string, show io.Writer,
	add func(*contender, error) error) error {
	mpicc, err := exec.LookPath(o.Mpicc)
	if err != nil {
		return err
	}
	mpirun, err := exec.LookPath(filepath.Join(filepath.Dir(mpicc), "mpirun"))
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, mpirun, "--version").Output()
	if err != nil || !strings.Contains(string(version), "Open MPI") && !strings.Contains(string(version), "OpenRTE") {
		return fmt.Errorf("%s is not Open MPI's", mpirun)
	}
	about, _, _ := strings.Cut(string(version), "\n")
	source, program := filepath.Join(dir, "openmpi_rank.c"), filepath.Join(dir, "openmpi_rank")
	if err := os.WriteFile(source, programs.OpenMPI, 0o600); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, mpicc, "-O2", "-o", program, source).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", mpicc, err, out)
	}
	c, err := newContender(dir, peerOpenMPI, about[strings.LastIndex(about, " ")+1:]+" from C", o.NumProc,
		modeAllreduce, modeAsync)
	if add(c, err) != nil {
		return err
	}
	// More ranks than cores are allowed, and Open MPI then yields. No rank is bound to a core, because the other
	// contenders' ranks are not bound either.
	return c.launch(ctx, 1, show, mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np",
		strconv.Itoa(o.NumProc), program, c.socket(), floats)
}

// startHorovod starts upstream's Horovod, once for each controller that it was built with.
func (o *options) startHorovod(ctx context.Context, dir, floats string, show io.Writer,
	add func(*contender, error) error) error {
	if o.Horovod == "" {
		return nil // most machines have no Horovod, and their users need no message
	}
	env := withoutPythonPath(os.Environ()) // PYTHONPATH may lead to this project's package
	have, err := probe(ctx, o.Horovod, env)
	if err == nil && have.Error != "" {
		err = errors.New(have.Error)
	}
	if err != nil {
		return fmt.Errorf("--horovod %s: it cannot import torch and horovod.torch: %w", o.Horovod, err)
	}
	program := filepath.Join(dir, "torch_rank.py")
	if err := os.WriteFile(program, programs.Torch, 0o600); err != nil {
		return err
	}
	for _, controller := range have.Controllers {
		c, err := newContender(dir, peerHorovod+"-"+controller,
			"Horovod "+have.Horovod+" over "+controller+", torch "+have.Torch, o.NumProc, allModes...)
		if add(c, err) != nil {
			return err
		}
		c.rests = true // its background threads wake each millisecond
		// Its clock goes on while the ranks are stopped amid a message.
		c.env = append(slices.Clip(env), "HOROVOD_GLOO_TIMEOUT_SECONDS=3600")
		command := append(withoutPlace(), o.Horovod, "-m", "horovod.runner.launch", "-np", strconv.Itoa(o.NumProc),
			"--"+controller)
		if controller == "mpi" {
			command = append(command, "--mpi-args=--allow-run-as-root --oversubscribe")
		}
		if err := c.launch(ctx, 1, show, append(command, o.Horovod, program, c.socket(), floats,
			"hvd")...); err != nil {
			return err
		}
	}
	return nil
}

// withoutPlace is a command that starts another one without the variables of a rank: upstream's launcher would hand
// them on to its ranks.
func withoutPlace() []string {
	command := []string{"env"}
	for _, name := range []string{"RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME",
		"CONTROLLER", "CPU_OPERATIONS", "SECRET_KEY", "GLOO_IFACE", "GLOO_RENDEZVOUS_ADDR", "GLOO_RENDEZVOUS_PORT"} {
		command = append(command, "-u", "HOROVOD_"+name)
	}
	return command
}

func withoutPythonPath(environ []string) []string {
	var kept []string
	for _, e := range environ {
		if !strings.HasPrefix(e, "PYTHONPATH=") {
			kept = append(kept, e)
		}
	}
	return kept
}

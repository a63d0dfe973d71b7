//go:build cgo && linux

// Command random is one rank of a job of random programs on the stand-in for GPUs, or on real ones: horovodrun starts
// it. With -shared all ranks use device 0, as NCCL allows from 2.30 on (NCCL_MULTI_RANK_GPU_ENABLE=1). Each program's
// operations run twice, on host memory and on the device. There the engine carries them by
// internal/carriers/gpu/carrier. The results must be equal bit for bit: all numbers are such that the results are
// exact, whatever the order of operands.
//
// With the flag -faults calls of CUDA's driver and of NCCL fail or hang. With -die a rank kills itself during an
// operation, and the others have to end.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/carriers/gpu/carrier"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/process"
	"github.com/gorovod/gorovod/internal/joining/world"
)

var (
	seed     = flag.Uint64("seed", 1, "of all programs")
	programs = flag.Int("programs", 100, "how many")
	mode     = flag.String("mode", "nccl", "how tensors travel: nccl, auto or staged")
	async    = flag.Bool("async", false, "operations end when they are in the device's stream")
	dies     = flag.Int("die", -1, "the program from which on rank 0 kills itself")
	exits    = flag.Bool("exit", false, "with -die: rank 0 ends by exit(0) instead")
	joins    = flag.Bool("join", false, "only operations before which rank 0 has joined")
	within   = flag.Duration("deadline", 20*time.Second, "of the making of a communicator")
	pack     = flag.Int("pack", 0, "only so many tensors that are reduced together; rank 0 prints its calls")
	chain    = flag.Bool("chain", false, "one operation at a time, which needs all its waits")
	outputs  = flag.Bool("outputs", false, "with -chain: the engine makes all outputs, in memory that it uses again")
	during   = flag.String("during", "", "what happens to calls of rank 0: see STANDIN_FAULTS")
	shared   = flag.Bool("shared", false, "all ranks use device 0")
	faults   = flag.String("faults", "", "a file with a line for each job that is run with these faults on rank 0")
)

// statusMourned is the exit status of a rank that ended well after another one's death.
const statusMourned = 7

var errMourned = errors.New("ended after the death of a rank")

func main() {
	flag.Parse()
	err := runAll()
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // horovodrun says which rank it is
	}
	switch {
	case errors.Is(err, errMourned):
		os.Exit(statusMourned)
	case err != nil:
		os.Exit(1)
	}
}

func runAll() error {
	if *faults != "" {
		return injectAll(*faults)
	}
	r, err := begin()
	if err != nil {
		return err
	}
	if *pack > 0 {
		return cmp.Or(r.packed(*pack), r.end())
	}
	if err = r.run(); err != nil && *dies >= 0 && strings.Contains(err.Error(), "rank 0") {
		fmt.Println("hears at", now())
		fmt.Fprintln(os.Stderr, err)
		err = errMourned
	}
	ended := r.end()
	if errors.Is(err, errMourned) {
		fmt.Println("is rid of it at", now())
	}
	if err == nil || errors.Is(err, errMourned) {
		expectNothing()
	}
	return cmp.Or(ended, err)
}

// rank is this process.
type rank struct {
	gpu     *gpu
	devices *carrier.Devices
	sets    []*set
	dice    *rand.Rand // of this rank
	results []running  // of the bursts since the last comparison
	dying   bool
}

var modes = map[string]carrier.Mode{"nccl": carrier.NCCL, "auto": carrier.Auto, "staged": carrier.Staged}

// begin joins the world.
func begin() (*rank, error) {
	r := &rank{}
	process.Devices = func(w *world.World) engine.Devices {
		r.devices = carrier.New(carrier.Native{}, carrier.Options{Rank: w.Place.Rank, Mode: modes[*mode], Async: *async,
			Deadline: deadline(), Default: device(w.Place.LocalRank), Abort: w.Abort, Describe: w.Describe,
			Log: logging.New(os.Stderr, logging.Options{Rank: w.Place.Rank})})
		return r.devices
	}
	if err := process.Init(context.Background(), os.LookupEnv, nil); err != nil {
		return nil, err
	}
	place := process.World().Place
	r.dice = rand.New(rand.NewPCG(*seed, uint64(place.Rank)))
	var err error
	if r.gpu, err = openGPU(device(place.LocalRank)); err == nil {
		r.sets, err = makeSets()
	}
	return r, err
}

// device returns the device of a rank.
func device(localRank int) int {
	if *shared {
		return 0
	}
	return localRank
}

// deadline returns how long the making of a communicator may take.
func deadline() time.Duration {
	if *faults != "" {
		return patience / 2
	}
	return *within
}

// between is the number of bursts on the device before the program reads their results.
const between = 3

func (r *rank) run() error {
	var sizes []int
	for _, s := range r.sets {
		sizes = append(sizes, len(s.ranks))
	}
	if *during != "" && process.World().Place.Rank == 0 {
		setFaults(*during)
	}
	bursts := 0
	for i := 0; i < *programs; bursts++ {
		all := draw(i, *programs, sizes)
		if i += len(all); i%16 == 0 && len(r.sets) > 1 && !*chain {
			if err := r.sets[1+i/16%(len(r.sets)-1)].renew(); err != nil {
				return err
			}
		}
		r.dying = *dies >= 0 && i > *dies && process.World().Place.Rank == 0
		if err := r.burst(all); err != nil {
			return fmt.Errorf("program %d, seed %d: %w", i-1, *seed, err)
		}
		if all[0].joined > 0 {
			if err := meet(operation.Join); err != nil {
				return err
			}
		}
		if !*chain && bursts%between == between-1 || i == *programs {
			if err := r.compare(i - 1); err != nil {
				return unlessFailed(err)
			}
		}
	}
	if *during != "" && *faults == "" && process.World().Place.Rank == 0 {
		fmt.Println("faults met:", faultsMet())
		setFaults("")
	}
	return meet(operation.Barrier)
}

// unlessFailed adds the job's failure, if there is one, to the error about a wrong result. With -async an operation may
// have ended for the program before the failure, and then its result may be wrong.
func unlessFailed(wrong error) error {
	if !*async {
		return wrong
	}
	return errors.Join(meet(operation.Barrier), wrong)
}

// end leaves the world, and frees all memory of the program on the device.
func (r *rank) end() error {
	process.Shutdown()
	if r.gpu == nil {
		return nil
	}
	err := r.gpu.idle(limit)
	return cmp.Or(err, r.gpu.close())
}

// die prints the time and ends this process, while the device and the engine are at work.
func (r *rank) die() {
	fmt.Println("dies at", now())
	if *exits {
		exit()
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// now reads the machine's monotonic clock, which is the same for all its processes.
func now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it cannot fail
	return time.Duration(t.Nano())
}

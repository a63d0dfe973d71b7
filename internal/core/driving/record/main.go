//go:build drivingnotes

// Command record runs small jobs and keeps what the drivers of their ranks do, for the transcripts in
// internal/core/driving/testdata/jobs:
//
//	make build
//	go build -tags drivingnotes -o /tmp/record ./internal/core/driving/record
//	/tmp/record build/horovodrun FOLDER [JOB…]
//
// It writes a folder for each job, with a file for each rank. Times and counts differ from run to run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// job is one scenario: how it is started, and what each rank does after three operations that all ranks wait for.
type job struct {
	name  string
	args  []string // of horovodrun
	fails bool     // on purpose
	rank  func(ctx context.Context, rank int) error
}

var (
	pair    = []string{"-np", "2"}
	crowd   = []string{"-np", "4"}
	apart   = []string{"-np", "2", "-H", "localhost:1,127.0.0.1:1"}
	couples = []string{"-np", "4", "-H", "localhost:2,127.0.0.1:2"}
)

var jobs = []job{
	{"late_peer", pair, false, late(60 * time.Millisecond)},
	{"late_peer_crowded", crowd, false, late(60 * time.Millisecond)},
	{"late_peer_two_hosts", apart, false, late(60 * time.Millisecond)},
	{"crowded_cores", crowd, false, late(0)},
	{"busy_cores", pair, false, busy},
	{"busy_cores_crowded", crowd, false, busy},
	{"busy_cores_two_hosts", apart, false, busy},
	{"two_hosts", couples, false, late(5 * time.Millisecond)},
	{"waiter_takes_over", pair, false, takeOver},
	{"parked_waiter", pair, false, parks},
	{"large_operation", pair, false, large},
	{"background_naps", pair, false, background},
	{"background_naps_crowded", crowd, false, background},
	{"background_naps_two_hosts", apart, false, background},
	{"program_polls", pair, false, polls(0)},
	{"program_polls_crowded", crowd, false, polls(0)},
	{"program_polls_and_sleeps", crowd, false, polls(time.Millisecond)},
	{"stall", pair, false, late(1300 * time.Millisecond)},
	{"abort", pair, true, abort},
	{"shutdown", pair, true, shutdown},
}

func main() {
	if name := os.Getenv("DRIVING_JOB"); name != "" {
		runRank(name)
		return
	}
	run, folder := os.Args[1], os.Args[2]
	for _, j := range jobs {
		if len(os.Args) == 3 || slices.Contains(os.Args[3:], j.name) {
			j.start(run, filepath.Join(folder, j.name))
		}
	}
}

// start runs the job under horovodrun.
func (j job) start(horovodrun, folder string) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		panic(err)
	}
	cmd := exec.Command(horovodrun, append(j.args, os.Args[0])...)
	cmd.Env = append(os.Environ(), "DRIVING_JOB="+j.name, "GOROVOD_DRIVING_NOTES="+folder)
	out, err := cmd.CombinedOutput()
	if (err != nil) != j.fails {
		fmt.Fprintf(os.Stderr, "%s: %v\n%s", j.name, err, out)
		os.Exit(1)
	}
}

func runRank(name string) {
	ctx := context.Background()
	err := hvd.Init()
	for i := 0; err == nil && i < 3; i++ {
		err = hvd.Allreduce(ctx, "x", []float32{1})
	}
	if err == nil {
		at := slices.IndexFunc(jobs, func(j job) bool { return j.name == name })
		err = jobs[at].rank(ctx, hvd.Rank())
	}
	hvd.Shutdown()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// late has rank 1 come late to what the others wait for.
func late(d time.Duration) func(context.Context, int) error {
	return func(ctx context.Context, rank int) error {
		if rank == 1 {
			time.Sleep(d)
		}
		return hvd.Allreduce(ctx, "x", []float32{1})
	}
}

// busy has each rank compute on two threads beside the one that waits.
func busy(ctx context.Context, _ int) error {
	var stop atomic.Bool
	for range 2 {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	defer stop.Store(true)
	for range 40 {
		if err := hvd.Allreduce(ctx, "x", []float32{1}); err != nil {
			return err
		}
	}
	return nil
}

// takeOver has rank 0 begin to wait when its background goroutine sleeps on the bell, since rank 1 is late.
func takeOver(ctx context.Context, rank int) error {
	if rank == 1 {
		time.Sleep(120 * time.Millisecond)
		return hvd.Allreduce(ctx, "x", []float32{1})
	}
	h, err := hvd.AllreduceAsync("x", []float32{1})
	if err != nil {
		return err
	}
	time.Sleep(80 * time.Millisecond)
	return h.Wait(ctx)
}

// parks has two threads of rank 0 wait, so that one of them parks. The other one's operation ends first.
func parks(ctx context.Context, rank int) error {
	if rank == 1 {
		time.Sleep(60 * time.Millisecond)
		if err := hvd.Allreduce(ctx, "x", []float32{1}); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
		return hvd.Allreduce(ctx, "y", []float32{1})
	}
	ended := make(chan error, 1)
	go func() { ended <- hvd.Allreduce(ctx, "x", []float32{1}) }()
	time.Sleep(20 * time.Millisecond)
	return errors.Join(hvd.Allreduce(ctx, "y", []float32{1}), <-ended)
}

// large has all ranks wait for an operation of many steps.
func large(ctx context.Context, _ int) error {
	return hvd.Allreduce(ctx, "x", make([]float32, 16<<20))
}

// background makes all ranks do other things for longer than the operation takes.
func background(ctx context.Context, rank int) error {
	h, err := hvd.AllreduceAsync("x", make([]float32, 1<<18))
	if err != nil {
		return err
	}
	time.Sleep(60 * time.Millisecond)
	return h.Wait(ctx)
}

// polls has each rank ask in a loop; rank 1 comes late.
func polls(pause time.Duration) func(context.Context, int) error {
	return func(ctx context.Context, rank int) error {
		if rank == 1 {
			time.Sleep(10 * time.Millisecond)
		}
		h, err := hvd.AllreduceAsync("x", []float32{1})
		if err != nil {
			return err
		}
		for !h.Done() {
			if pause > 0 {
				time.Sleep(pause)
			}
		}
		return h.Wait(ctx)
	}
}

// abort has rank 1 die while rank 0 waits for it.
func abort(ctx context.Context, rank int) error {
	if rank == 1 {
		time.Sleep(30 * time.Millisecond)
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return hvd.Allreduce(ctx, "x", []float32{1})
}

// shutdown has rank 1 leave while rank 0 waits for it.
func shutdown(ctx context.Context, rank int) error {
	if rank == 1 {
		time.Sleep(30 * time.Millisecond)
		return nil
	}
	return hvd.Allreduce(ctx, "x", []float32{1})
}

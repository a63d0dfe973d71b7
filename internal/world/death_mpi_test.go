package world

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/backend/mpi"
	"github.com/gorovod/gorovod/internal/config"
	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/tensor"
)

// mpiDeathVariable makes this test's binary a rank of TestDeathOverMPI: a directory in which it says why it ends, since an
// mpirun that fails loses output.
const mpiDeathVariable = "WORLD_TEST_MPI_DEATH"

// When a process dies amid an operation that MPI carries, those of the others end, and say who it
// was. MPI itself would let them wait for ever, here where mpirun does not end them. MPICH's Hydra kills them in any case,
// even with -disable-auto-cleanup.
func TestDeathOverMPI(t *testing.T) {
	if os.Getenv(mpiRankVariable) != "" {
		t.Skip("this is a rank")
	}
	if raceDetector {
		t.Skip("MPI's threads are not the race detector's")
	}
	mpirun, err := exec.LookPath("mpirun.openmpi")
	if err != nil {
		t.Skipf("Open MPI is not installed: %v", err)
	}
	const n = 3
	l := newLauncher(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	c := exec.CommandContext(ctx, mpirun, "--allow-run-as-root", "--oversubscribe", "--enable-recovery", "-n", strconv.Itoa(n), os.Args[0], "-test.run=^TestDyingRankOverMPI$", "-test.v")
	c.WaitDelay = 10 * time.Second
	dir := t.TempDir()
	c.Env = append(os.Environ(), mpiRankVariable+"="+l.addr, mpiDeathVariable+"="+dir)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.Run() // fails, since one has died, and may be back before the others have ended
	for _, rank := range []int{0, 2} {
		cause := awaitFile(ctx, filepath.Join(dir, strconv.Itoa(rank)))
		t.Logf("rank %d: %s", rank, cause)
		if !strings.Contains(cause, "rank 1") {
			t.Errorf("what rank %d is told is not of rank 1: %q\n%s", rank, cause, tail(out.Bytes()))
		}
	}
}

// awaitFile is what a file holds when it is there; empty if ctx ends before.
func awaitFile(ctx context.Context, name string) string {
	for ctx.Err() == nil {
		if text, err := os.ReadFile(name); err == nil {
			return string(text)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return ""
}

// TestDyingRankOverMPI is one rank of the above.
func TestDyingRankOverMPI(t *testing.T) {
	addr := os.Getenv(mpiRankVariable)
	if addr == "" || os.Getenv(mpiDeathVariable) == "" {
		t.Skip("this process was not started as a rank of MPI")
	}
	l, err := mpi.Load("")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Init(false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	processes, err := l.Duplicate(ctx, l.World())
	if err != nil {
		t.Fatal(err)
	}
	n, rank := processes.Size(), processes.Rank()
	c := (&launcher{addr: addr}).config(rank, n, "auto")
	c.LocalSize = 64
	c.CPUOperations = config.MPI
	o := quiet()
	o.MPI = processes
	w, err := Join(ctx, c, 1, o)
	if err != nil {
		t.Fatal(err)
	}
	mine := make([]byte, 8<<20)
	for i := 0; ; i++ {
		var all []byte
		en, err := w.Engine.Enqueue(&engine.Op{Type: negotiate.Allgather, DType: tensor.Uint8, Name: "data", Shape: tensor.Shape{int64(len(mine))}, Prescale: 1, Postscale: 1,
			In: mine, WillWait: true, Alloc: func(s tensor.Shape, n int) ([]byte, error) {
				if all = make([]byte, n); rank == 1 && i == 3 {
					syscall.Kill(os.Getpid(), syscall.SIGKILL) // all have agreed on the operation
				}
				return all, nil
			}})
		if err == nil {
			if !en.Wait(limit) {
				fmt.Println("an operation does not end")
				os.Exit(1)
			}
			err = en.Err()
			en.Release()
		}
		if err != nil {
			w.Leave(limit)
			processes.Free()
			l.Finalize() // which leave MPI alone, as it would wait for the dead
			at := filepath.Join(os.Getenv(mpiDeathVariable), strconv.Itoa(rank))
			if os.WriteFile(at+".part", []byte(err.Error()), 0o600) == nil {
				os.Rename(at+".part", at)
			}
			os.Exit(0)
		}
	}
}

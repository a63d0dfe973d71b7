//go:build cgo && linux

package mpi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// finalizeVariable makes this test's binary a process of an mpirun.
const finalizeVariable = "MPI_TEST_FINALIZE"

// A process that calls MPI_Finalize while another one still makes other calls of MPI waits for that one, and both end.
func TestFinalizeWhileAnotherProcessCallsMPI(t *testing.T) {
	finalizes(t, func(l *Library, world *Communicator) {
		if world.Rank() == 1 {
			callMPI(t, l, 2*time.Second)
		}
		if err := l.Finalize(); err != nil {
			t.Error(err)
		}
	})
}

// callMPI makes calls of MPI that need no other process.
func callMPI(t *testing.T, l *Library, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		self, err := l.Duplicate(t.Context(), 0x44000001) // MPI_COMM_SELF of MPICH
		if err != nil {
			t.Fatal(err)
		}
		self.Free()
	}
}

// hangLimit is for the tests of an MPI_Finalize that hangs.
const hangLimit = 3 * time.Second

// If MPI_Finalize hangs although all processes have come to it, a process says so, leaves it, and ends in order.
func TestFinalizeThatHangs(t *testing.T) {
	hangs(t, func(*Library) {})
}

// So it does if it waits for the process manager's answer, which is not to reach it any more.
func TestFinalizeThatHangsAtTheBarrier(t *testing.T) {
	hangs(t, func(l *Library) { callMPI(t, l, hangLimit/3) })
}

// hangs has process 1 come to the end of MPI, do something, and not call MPI_Finalize.
func hangs(t *testing.T, do func(*Library)) {
	finalizes(t, func(l *Library, world *Communicator) {
		if world.Rank() == 1 {
			l.manager.barrier()
			do(l)
			time.Sleep(3 * hangLimit)
			l.manager.goodbye()
			return
		}
		err := l.finalize(hangLimit)
		if err == nil || !strings.Contains(err.Error(), "MPI_Finalize has not returned for 3s") {
			t.Errorf("Finalize: %v", err)
		}
		if err := l.Finalize(); err != nil {
			t.Errorf("a second time: %v", err)
		}
		before := cpuTime(t)
		time.Sleep(hangLimit / 3)
		if used := cpuTime(t) - before; used > hangLimit/30 {
			t.Errorf("the process uses %v in %v", used, hangLimit/3)
		}
	})
}

func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Only MPICH over UCX needs the meeting, and only version 1 of PMI can be spoken beside MPI.
func TestLeavesAlone(t *testing.T) {
	const mpich = "MPICH Version:\t4.0.2\nMPICH Device:\tch4:%s\nMPICH configure:\t--with-ucx=/usr %s\n"
	for _, c := range []struct {
		version, variable string
		want              bool
	}{
		{fmt.Sprintf(mpich, "ucx", "--with-device=ch4:ucx"), "", true},
		{fmt.Sprintf(mpich, "ucx", ""), "MPIR_CVAR_PMI_VERSION=1", true},
		{fmt.Sprintf(mpich, "ucx", ""), "MPIR_CVAR_PMI_VERSION=2", false},
		{fmt.Sprintf(mpich, "ucx", ""), "PMI_VERSION=2", false},
		{fmt.Sprintf(mpich, "ucx", "--with-pmi=pmi2"), "", false},
		{fmt.Sprintf(mpich, "ucx", "--with-pmix=/usr"), "", false},
		{fmt.Sprintf(mpich, "ofi", ""), "", false},
		{"Open MPI v4.1.4, ucx", "", false},
	} {
		getenv := func(name string) string {
			value, _ := strings.CutPrefix(c.variable, name+"=")
			if value == c.variable {
				return ""
			}
			return value
		}
		if got := leavesAlone(c.version, getenv); got != c.want {
			t.Errorf("%q with %q: %v, want %v", c.version, c.variable, got, c.want)
		}
	}
}

// finalizes runs two processes of MPICH, over TCP as if they were on two hosts.
func finalizes(t *testing.T, do func(*Library, *Communicator)) string {
	if os.Getenv(finalizeVariable) != "" {
		l, err := Load("")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Init(false); err != nil {
			t.Fatal(err)
		}
		world, err := l.Duplicate(t.Context(), l.World())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := world.Allgather(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
		do(l, world)
		fmt.Printf("process %d ends\n", world.Rank())
		return ""
	}
	if _, err := exec.LookPath("mpirun.mpich"); err != nil {
		t.Skipf("MPICH is not installed (Debian: mpich): %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	p := exec.CommandContext(ctx, "mpirun.mpich", "-n", "2", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	p.Env = append(os.Environ(), finalizeVariable+"=1", "UCX_TLS=tcp,self")
	p.Cancel = func() error { return p.Process.Signal(unix.SIGTERM) } // it ends its processes then
	p.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	p.Stdout, p.Stderr = &out, &out
	if err := p.Run(); err != nil {
		t.Errorf("mpirun: %v\n%s", err, &out)
	}
	for r := range 2 {
		if want := fmt.Sprintf("process %d ends", r); !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &out)
		}
	}
	return out.String()
}

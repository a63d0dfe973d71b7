//go:build cgo && linux

package mpi

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// nullVariable makes this test's binary a process that passes the null communicator.
const nullVariable = "MPI_TEST_NULL"

// The error names the null communicator before MPI sees it, because MPI would end the job.
func TestNullCommunicator(t *testing.T) {
	if os.Getenv(nullVariable) != "" {
		l, err := Load("")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Init(false); err != nil {
			t.Fatal(err)
		}
		null := uintptr(l.functions.null)
		_, err = l.Duplicate(t.Context(), null)
		fmt.Printf("duplicate: %v\n", err)
		world, err := l.Duplicate(t.Context(), l.World())
		if err != nil {
			t.Fatal(err)
		}
		_, err = world.Ranks(null)
		fmt.Printf("ranks: %v\n", err)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.call.comm = l.functions.null
		l.do(uint32(slices.Index(names[:], "Comm_size"))) // MPI ends the process
		fmt.Println("let pass")
		return
	}
	for _, start := range [][]string{{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"}, {"mpirun.mpich"}} {
		t.Run(start[0], func(t *testing.T) {
			if _, err := exec.LookPath(start[0]); err != nil {
				t.Skipf("%s is not installed (Debian: openmpi-bin, mpich)", start[0])
			}
			p := exec.CommandContext(t.Context(), start[0], append(start[1:], "-n", "1", os.Args[0],
				"-test.run=^TestNullCommunicator$", "-test.v")...)
			p.Env = append(os.Environ(), nullVariable+"=1")
			out, err := p.CombinedOutput()
			for _, want := range []string{"duplicate: it is MPI_COMM_NULL", "ranks: it is MPI_COMM_NULL"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in %s", want, out)
				}
			}
			// MPI's own message does not always come through: mpirun sometimes loses it.
			if err == nil || strings.Contains(string(out), "let pass") {
				t.Errorf("MPI takes the handle for a communicator (%v): %s", err, out)
			}
		})
	}
}

//go:build cgo && linux

package mpi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// loadVariable makes this test's binary a process that prints the libmpi that it finds.
const loadVariable = "MPI_TEST_LOAD"

// A program may be linked with the libmpi of another launcher, as some builds of PyTorch are. Load takes the launcher's
// libmpi, and takes none for initialised.
func TestLibraryOfTheLauncher(t *testing.T) {
	if os.Getenv(loadVariable) != "" {
		l, err := Load("")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("uses %s, in use %v\n", l.Version(), InUse())
		return
	}
	installed := func(name string) string {
		found, _ := filepath.Glob("/usr/lib/*/" + name)
		if len(found) == 0 {
			t.Skipf("%s is not installed (Debian: libopenmpi3, libmpich12)", name)
		}
		return found[0]
	}
	openMPI, mpich := installed("libmpi.so.40"), installed("libmpich.so.12")
	for _, c := range []struct{ preload, env, want string }{
		{openMPI, "PMI_RANK=0", "uses MPICH"},
		{mpich, "OMPI_COMM_WORLD_SIZE=1", "uses Open MPI"},
		{openMPI, "OMPI_COMM_WORLD_SIZE=1", "uses Open MPI"},
		{mpich, "PMI_FD=9", "uses MPICH"},
		{mpich, "NOBODY=1", "uses MPICH"},
		{openMPI, "NOBODY=1", "uses Open MPI"},
	} {
		p := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLibraryOfTheLauncher$", "-test.v")
		p.Env = append(os.Environ(), loadVariable+"=1", "LD_PRELOAD="+c.preload, c.env)
		out, err := p.CombinedOutput()
		if said := string(out); err != nil || !strings.Contains(said, c.want) || !strings.Contains(said,
			"in use false") {
			t.Errorf("%s loaded, %s: want %q, %v: %s", filepath.Base(c.preload), c.env, c.want, err, said)
		}
	}
}

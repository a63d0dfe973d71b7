package world

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
)

const (
	mpiRoleVariable = "WORLD_TEST_MPI" // makes this test's binary a rank: one of mpiRoles
	// mpiMeetVariable is the address of the rendezvous; after "at " it is the address at which rank 0 is to serve it.
	mpiMeetVariable = "WORLD_TEST_MPI_MEET"
	mpiLibVariable  = "GOROVOD_MPI_LIBRARY"
)

// mpiRoles are the roles of a rank that mpirun has started.
var mpiRoles = map[string]func(*testing.T, *mpiRankOf){"contract": keepContract, "death": dieAsRankOne}

// implementations are the implementations of MPI that the tests look for, and how they start n ranks.
var implementations = []implementation{
	{"Open MPI", "", []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"},
		[]string{"--enable-recovery"}},
	{"MPICH", "", []string{"mpirun.mpich"}, nil},
	{"Open MPI's standard interface", "libmpi_abi_openmpi.so.1.0.0", []string{"mpirun.openmpi", "--allow-run-as-root",
		"--oversubscribe"}, []string{"--enable-recovery"}},
	{"MPICH's standard interface", "libmpi_abi_mpich.so.1.0.0", []string{"mpirun.mpich"}, nil},
}

type implementation struct {
	name    string
	library string // empty: the one that Load finds; otherwise Debian's file with the binary interface of MPI 5
	start   []string
	spare   []string // options that spare the others when a rank has died; nil if there are none
}

// overMPI runs a test with each of the implementations that is installed, and skips the others, with the reason.
func overMPI(t *testing.T, implementations []implementation, do func(*testing.T, implementation)) {
	if os.Getenv(mpiRoleVariable) != "" {
		return // this is a rank
	}
	if raceDetector {
		t.Skip("MPI's threads are not the race detector's")
	}
	for _, i := range implementations {
		t.Run(i.name, func(t *testing.T) {
			if _, err := exec.LookPath(i.start[0]); err != nil {
				t.Skipf("%s is not installed (Debian: openmpi-bin, mpich): %v", i.name, err)
			}
			if i.library != "" {
				// Loading the library would bind this process, which is no rank.
				if found, _ := filepath.Glob("/usr/lib/*/" + i.library); len(found) == 0 {
					t.Skipf("%s is not installed (Debian, from forky on: libmpi-abi-…)", i.library)
				}
			}
			do(t, i)
		})
	}
}

// mpirun runs n ranks in a role, and returns their output. This process serves their rendezvous.
func (i implementation) mpirun(ctx context.Context, t *testing.T, n int, role string, options []string,
	env ...string) (out []byte, err error) {
	t.Helper()
	args := slices.Concat(i.start[1:], options, []string{"-n", strconv.Itoa(n)}, asMPIRank)
	env = append(env, mpiMeetVariable+"="+newLauncher(t, n).addr, mpiLibVariable+"="+i.library)
	return runRanks(exec.CommandContext(ctx, i.start[0], args...), role, env)
}

// asMPIRank is the command of a rank.
var asMPIRank = []string{os.Args[0], "-test.run=^TestRankOverMPI$", "-test.v", "-test.timeout=10m"}

func runRanks(c *exec.Cmd, role string, env []string) (out []byte, err error) {
	c.WaitDelay = 10 * time.Second
	c.Env = append(append(os.Environ(), mpiRoleVariable+"="+role), env...)
	var both bytes.Buffer
	c.Stdout, c.Stderr = &both, &both
	err = c.Run()
	return both.Bytes(), err
}

// TestRankOverMPI is one rank of the tests over MPI.
func TestRankOverMPI(t *testing.T) {
	role := os.Getenv(mpiRoleVariable)
	if role == "" {
		return // this process was not started as a rank
	}
	l, err := mpi.Load(os.Getenv(mpiLibVariable))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Init(os.Getenv("HOROVOD_MPI_THREADS_DISABLE") != ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	processes, err := l.Duplicate(ctx, l.World())
	if err != nil {
		t.Fatal(err)
	}
	r := &mpiRankOf{library: l, processes: processes, rank: processes.Rank(), n: processes.Size()}
	c := meetRanks(ctx, t, processes).config(r.rank, r.n, "auto")
	c.Told.LocalSize = 64 // more ranks than cores, so a waiting rank does not spin
	c.CacheCapacity = 64
	c.CPUOperations = config.MPI
	o := quiet()
	o.MPI = processes
	if r.World, err = join(ctx, c, 1, o); err != nil {
		t.Fatal(err)
	}
	mpiRoles[role](t, r)
}

// mpiRankOf is this process's place in a job of mpirun's.
type mpiRankOf struct {
	*World
	library   *mpi.Library
	processes *mpi.Communicator
	rank, n   int
}

// meetRanks finds the rendezvous, or lets rank 0 serve it and tell the others.
func meetRanks(ctx context.Context, t *testing.T, processes *mpi.Communicator) *launcher {
	at, here := strings.CutPrefix(os.Getenv(mpiMeetVariable), "at ")
	if !here {
		return &launcher{addr: at}
	}
	var mine []byte
	if processes.Rank() == 0 {
		mine = []byte(newLauncherAt(t, at, processes.Size()).addr)
	}
	all, err := processes.Allgather(ctx, mine)
	if err != nil {
		t.Fatal(err)
	}
	return &launcher{addr: string(all[0])}
}

// leave ends the rank's membership and its use of MPI, except after a failure, when MPI would wait for the dead.
func (r *mpiRankOf) leave() {
	r.Leave(limit)
	r.processes.Free()
	r.library.Finalize()
}

// cutLine is the rest of the line after a text; empty if there is none.
func cutLine(all, text string) string {
	_, after, _ := strings.Cut(all, text)
	line, _, _ := strings.Cut(after, "\n")
	return line
}

// tail is the beginning and the end of an output, which have the important lines.
func tail(p []byte) []byte {
	const part = 4000
	if len(p) <= 2*part {
		return p
	}
	return slices.Concat(p[:part], []byte("\n[…]\n"), p[len(p)-part:])
}

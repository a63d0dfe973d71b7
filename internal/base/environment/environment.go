// Package environment finds out, from a process's variables, which launcher has started it as which rank of a job:
// horovodrun, torchrun, mpirun of Open MPI, mpiexec of MPICH and its kin (Hydra), srun of Slurm, or jsrun of IBM's
// LSF. Find reads only the variables that it is given. Get, Set and Overlay are for environments as lists.
package environment

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Launcher is the program that has started the process.
type Launcher string

// The launchers, in the order of precedence: if one of them runs under another, the process belongs to the first in
// this list.
const (
	Nobody     Launcher = ""
	Horovodrun Launcher = "horovodrun" // or any program that sets HOROVOD_RANK and HOROVOD_SIZE
	Torchrun   Launcher = "torchrun"   // or any program that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
	OpenMPI    Launcher = "mpirun of Open MPI"
	Hydra      Launcher = "mpiexec (PMI)"
	Srun       Launcher = "srun"
	Jsrun      Launcher = "jsrun"
)

// Place is a process's place in its job.
type Place struct {
	// Launcher is Nobody for a process that runs alone; then Size is 1. For Horovodrun no other field is set, because
	// its variables are Horovod's own.
	Launcher   Launcher
	Rank, Size int
	// LocalSize is 0 if the launcher does not tell how many ranks this host has. CrossSize is 0 if it does not tell
	// which hosts the ranks are on.
	LocalRank, LocalSize int
	CrossRank, CrossSize int
	// Host is the launcher's name for this host; empty if it has none.
	Host string
	// Job is the same on all ranks of one start, and differs from every other start. It is no secret. Empty if the
	// launcher has no such name.
	Job string
	// Head is the name or address of rank 0's host; empty if the launcher does not tell.
	Head string
	// Nodes are the names of all hosts on which the launcher has started ranks, in its order; empty if it does not
	// tell.
	Nodes []string
	// PMI is the value of PMI_FD, the connection with the process manager; empty if there is none.
	PMI string
	// PMIx is the name that PMIx has for the job, if its server has started this process as this rank of it; otherwise
	// empty.
	PMIx string
}

// OneHost reports whether all ranks are known to be on one host.
func (p Place) OneHost() bool { return p.LocalSize == p.Size }

// Find returns the process's place. A variable with an empty value counts as not set. An error means that a launcher's
// variables are invalid or contradict one another.
func Find(lookup func(name string) (string, bool)) (Place, error) {
	e := variables{lookup: lookup}
	for _, l := range []struct {
		launcher Launcher
		place    func(*variables) Place
	}{{Horovodrun, horovodrun}, {Torchrun, torchrun}, {OpenMPI, openMPI}, {Hydra, hydra}, {Srun, srun},
		{Jsrun, jsrun}} {
		e.numbers = nil
		p := l.place(&e)
		if e.err == nil && p.Launcher != Nobody {
			if err := p.check(); err != nil {
				e.err = fmt.Errorf("%w (%s)", err, strings.Join(e.numbers, ", "))
			}
		}
		if e.err != nil {
			return Place{}, fmt.Errorf("the environment of %s: %w", l.launcher, e.err)
		}
		if p.Launcher != Nobody {
			return p, nil
		}
	}
	return Place{Size: 1, LocalSize: 1, CrossSize: 1}, nil
}

func (p Place) check() error {
	switch {
	case p.Launcher == Horovodrun:
		return nil
	case p.Size < 1 || p.Rank >= p.Size:
		return fmt.Errorf("rank %d of %d", p.Rank, p.Size)
	case p.LocalSize > 0 && p.LocalRank >= p.LocalSize || p.LocalSize > p.Size:
		return fmt.Errorf("rank %d of the %d on its host, of %d in all", p.LocalRank, p.LocalSize, p.Size)
	}
	return nil
}

// variables reads environment variables, and keeps the first error.
type variables struct {
	lookup  func(string) (string, bool)
	numbers []string // the numbers that have been read, as NAME=VALUE
	err     error
}

func (e *variables) text(name string) string {
	v, _ := e.lookup(name)
	return v
}

// has reports whether all of these are set.
func (e *variables) has(names ...string) bool {
	for _, name := range names {
		if e.text(name) == "" {
			return false
		}
	}
	return true
}

// pmix is the name that PMIx has for the job, if PMIx gives this process the same rank in it.
func (e *variables) pmix(rank int) string {
	if e.text("PMIX_RANK") != strconv.Itoa(rank) {
		return ""
	}
	return e.text("PMIX_NAMESPACE")
}

// number reads a count that must be set.
func (e *variables) number(name string) int {
	n, err := strconv.Atoi(e.text(name))
	if (err != nil || n < 0 || n > maxRanks) && e.err == nil {
		e.err = fmt.Errorf("%s=%q: a whole number from 0 to %d is needed", name, e.text(name), maxRanks)
	}
	e.numbers = append(e.numbers, name+"="+strconv.Itoa(n))
	return n
}

// maxRanks is more than any job has.
const maxRanks = 1 << 20

// optional reads a count that may be missing: then it is 0.
func (e *variables) optional(name string) int {
	if !e.has(name) {
		return 0
	}
	return e.number(name)
}

// fail notes the first error.
func (e *variables) fail(text string) {
	if e.err == nil {
		e.err = errors.New(text)
	}
}

func horovodrun(e *variables) Place {
	if e.has("HOROVOD_RANK") || e.has("HOROVOD_SIZE") {
		return Place{Launcher: Horovodrun}
	}
	return Place{}
}

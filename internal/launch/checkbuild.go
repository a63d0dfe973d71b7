package launch

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/tools/doctor/cluster"
	"github.com/gorovod/gorovod/internal/tools/interpreter"
)

// checkBuild is the summary of --check-build, in Horovod's form, for the Python of the job: the command's, or else the
// first in PATH. "Gloo" stands for gorovod's own transport. note names that Python. The error is that of jobsPython.
func checkBuild(command, env []string) (summary, note string, err error) {
	python, note, err := jobsPython(command, env)
	if err != nil {
		return "", "", err
	}
	has := func(module string) bool { return slices.Contains(python.Modules, module) }
	_, noMPI := exec.LookPath("mpirun")
	mpi := noMPI == nil // the library, which is only needed in the processes, comes with it
	var b strings.Builder
	fmt.Fprintf(&b, "Horovod v%s:\n", version.Horovod)
	for _, list := range []struct {
		heading string
		items   []item
	}{
		{"Available Frameworks", []item{{"TensorFlow", has("tensorflow")}, {"PyTorch", has("torch")},
			{"MXNet", false}}},
		{"Available Controllers", []item{{"MPI", mpi}, {"Gloo", true}}},
		{"Available Tensor Operations", []item{{"NCCL", python.NCCL != ""}, {"DDL", false}, {"CCL", false},
			{"MPI", mpi}, {"Gloo", true}}},
	} {
		fmt.Fprintf(&b, "\n%s:\n", list.heading)
		for _, i := range list.items {
			mark := " "
			if i.available {
				mark = "X"
			}
			fmt.Fprintf(&b, "    [%s] %s\n", mark, i.name)
		}
	}
	return b.String(), note, nil
}

type item struct {
	name      string
	available bool
}

// jobsPython asks the interpreter that would run the job's program. note is for the user. The error is about a program
// that the user has named.
func jobsPython(command, env []string) (p cluster.Python, note string, err error) {
	names, named := []string{"python3", "python"}, false
	if len(command) > 0 {
		if _, _, err := spawn.FindCommand(command[0], environment.Get(env, "PATH")); err != nil {
			return p, "", err
		}
		if named = strings.HasPrefix(filepath.Base(command[0]), "python"); named {
			names = command[:1]
		}
	}
	var problems []string
	ctx, stop := interpreter.Interruptible()
	defer stop()
	for _, name := range names {
		path, _, err := spawn.FindCommand(name, environment.Get(env, "PATH"))
		if err != nil {
			continue
		}
		if p = cluster.AskPython(ctx, path, env); ctx.Err() != nil {
			return p, "", errors.New("interrupted")
		}
		if p.Problem != "" && named {
			return p, "", fmt.Errorf("nothing is known of %s: %s", path, p.Problem)
		}
		if p.Problem != "" {
			problems = append(problems, "; nothing is known of "+path+": "+p.Problem)
			continue
		}
		note = fmt.Sprintf("the frameworks are those of %s (Python %s)", path, p.Version)
		if !slices.Contains(p.Modules, "horovod") {
			note += ", which has no horovod package: install gorovod's wheel there"
		}
		if p.NCCLProblem != "" {
			note += "; " + p.NCCLProblem + " (gorovod doctor --gpu says more)"
		}
		return p, note + "; --check-build PYTHON asks another one", nil
	}
	return cluster.Python{}, "no frameworks: no Python called " + strings.Join(names, " or ") + " is of use" +
		strings.Join(problems, ""), nil
}

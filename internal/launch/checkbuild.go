package launch

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/doctor/cluster"
	"github.com/gorovod/gorovod/internal/version"
)

// checkBuild is the summary of --check-build, in Horovod's form, for the Python of the job: the command's, or else the
// first in PATH. "Gloo" stands for gorovod's own transport. note names that Python.
func checkBuild(command, env []string) (summary, note string) {
	python, note := jobsPython(command, env)
	has := func(module string) bool { return slices.Contains(python.Modules, module) }
	_, err := exec.LookPath("mpirun")
	mpi := err == nil // the library, which is only needed in the processes, comes with it
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
	return b.String(), note
}

type item struct {
	name      string
	available bool
}

// jobsPython asks the interpreter that would run the job's program. note is for the user.
func jobsPython(command, env []string) (p cluster.Python, note string) {
	names := []string{"python3", "python"}
	if len(command) > 0 && strings.HasPrefix(filepath.Base(command[0]), "python") {
		names = command[:1]
	}
	for _, name := range names {
		path, _, err := findCommand(name, lookEnv(env, "PATH"))
		if err != nil {
			continue
		}
		if p = cluster.AskPython(context.Background(), path, env); p.Version == "" {
			continue
		}
		note = fmt.Sprintf("the frameworks are those of %s (Python %s)", path, p.Version)
		if !slices.Contains(p.Modules, "horovod") {
			note += ", which has no horovod package: install gorovod's wheel there"
		}
		return p, note + "; --check-build PYTHON asks another one"
	}
	return p, "no frameworks: there is no Python called " + strings.Join(names, " or ")
}

package launch

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/gorovod/gorovod/internal/version"
)

// checkBuild is the summary of --check-build, in upstream's form. Gloo stands
// for gorovod's own transport, which takes its place.
func checkBuild() string {
	_, err := exec.LookPath("mpirun")
	mpi := err == nil // the library, which is only needed in the processes, comes with it
	var b strings.Builder
	fmt.Fprintf(&b, "Horovod v%s:\n", version.Horovod)
	for _, list := range []struct {
		heading string
		items   []item
	}{
		{"Available Frameworks", []item{{"TensorFlow", false}, {"PyTorch", true}, {"MXNet", false}}},
		{"Available Controllers", []item{{"MPI", mpi}, {"Gloo", true}}},
		{"Available Tensor Operations", []item{{"NCCL", false}, {"DDL", false}, {"CCL", false}, {"MPI", mpi}, {"Gloo", true}}},
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
	return b.String()
}

type item struct {
	name      string
	available bool
}

package cluster

import (
	"context"
	"encoding/json"
	"os/exec"
	"time"
)

// packages are the Python distributions that matter to a job, by the names that users know.
var packages = []string{"gorovod", "horovod", "torch", "tensorflow", "tensorflow-cpu", "keras", "jax", "numpy",
	"cloudpickle", "mpi4py", "pyspark"}

// Python is an interpreter's report about itself.
type Python struct {
	Version  string            // empty: there is no such interpreter
	Packages map[string]string // versions of packages, by name
	// Modules are those of the frameworks, and of this project's package, that it can import, from any distribution.
	Modules []string
	// NCCL is the version of NCCL that collectives of its processes can use, such as 2.18.5; empty: none.
	NCCL string
}

const pythonTimeout = 10 * time.Second

// pythonProgram imports nothing large, which would take long. It ignores modules in the working directory, because a
// job's programs are elsewhere.
const pythonProgram = `
import json, sys
sys.path[:] = [entry for entry in sys.path if entry]
try:
    from importlib.metadata import version
except ImportError:
    def version(name):
        raise KeyError(name)
from importlib.util import find_spec
packages = {}
for name in sys.argv[1:]:
    try:
        packages[name] = version(name)
    except Exception:
        pass
modules = []
for name in ("horovod", "torch", "tensorflow", "jax"):
    try:
        if find_spec(name).origin:
            modules.append(name)
    except Exception:
        pass
nccl = ""
try:
    from horovod.common.util import nccl_built
    code = nccl_built()
    if code:
        nccl = "%d.%d.%d" % (code // 10000, code % 10000 // 100, code % 100)
except Exception:
    pass
print(json.dumps({"Version": sys.version.split()[0], "Packages": packages, "Modules": modules, "NCCL": nccl}))
`

// AskPython asks an interpreter, by its file, for its report. env is the environment in which it runs. AskPython blocks
// at most pythonTimeout.
func AskPython(ctx context.Context, file string, env []string) (p Python) {
	ctx, cancel := context.WithTimeout(ctx, pythonTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, append([]string{"-c", pythonProgram}, packages...)...)
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil || json.Unmarshal(out, &p) != nil {
		return Python{}
	}
	return p
}

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/tools/interpreter"
)

// packages are the Python distributions that matter to a job, by the names that users know.
var packages = []string{"gorovod", "horovod", "torch", "tensorflow", "tensorflow-cpu", "keras", "jax", "numpy",
	"cloudpickle", "mpi4py", "pyspark"}

// Python is an interpreter's report about itself.
type Python struct {
	Version  string            // empty: see Problem
	Packages map[string]string // versions of packages, by name
	// Modules are those of the frameworks, and of this project's package, that it can import, from any distribution.
	Modules []string
	// NCCL is the version of NCCL that collectives of its processes can use, such as 2.18.5; empty: none.
	NCCL string

	Problem     string `json:"-"` // why nothing is known, such as "there is no such program"; empty if it has answered
	NCCLProblem string // why nothing is known of NCCL; empty if it has answered that, too
}

const pythonTimeout = 30 * time.Second // CUDA may take ten to start

// pythonProgram imports nothing large, which would take long. It ignores modules in the working directory, because a
// job's programs are elsewhere. NCCL comes last: its library, or CUDA's, may hang or end the process.
const pythonProgram = `
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import json
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
print("\n" + json.dumps({"Version": sys.version.split()[0], "Packages": packages, "Modules": modules}), flush=True)
nccl = why = ""
try:
    from horovod.common import _lib
    code = _lib.load().gorovod_usable_nccl(2)
    nccl = "%d.%d.%d" % (code // 10000, code % 10000 // 100, code % 100) if code else ""
except Exception as e:
    why = repr(e) if "horovod" in modules else ""
print("\n" + json.dumps({"NCCL": nccl, "NCCLProblem": why}), flush=True)
sys.stderr.write("\ngorovod has answered\n")
sys.stderr.flush()
`

// AskPython asks an interpreter, by its file, for its report. env is the environment in which it runs. AskPython blocks
// at most pythonTimeout.
func AskPython(ctx context.Context, file string, env []string) (p Python) {
	var out head
	program := interpreter.Program{Python: file, Args: append([]string{"-c", pythonProgram}, packages...), Env: env,
		Limit: pythonTimeout, Stdout: &out}
	err := program.Run(ctx)
	asked := false                                  // for NCCL, and it has answered
	for line := range strings.Lines(out.String()) { // others may be of a module that is imported at the start
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &p) == nil {
			asked = asked || strings.Contains(line, `"NCCL"`)
		}
	}
	var died *interpreter.Died
	switch {
	case p.Version == "" && errors.As(err, &died) && died.How != interpreter.Early:
		return Python{Problem: "it " + err.Error()}
	case p.Version == "" && err != nil && died == nil:
		return Python{Problem: err.Error()}
	case p.Version == "":
		return Python{Problem: "it has not answered as a Python does"}
	case err != nil:
		p.NCCLProblem = "the Python that was asked for NCCL " + err.Error()
	case p.NCCLProblem != "":
		p.NCCLProblem = "gorovod's library cannot be asked for NCCL (" + p.NCCLProblem + ")"
	case !asked:
		p.NCCLProblem = "the Python that was asked for NCCL has not answered"
	}
	return p
}

// head keeps the beginning of a text.
type head struct{ strings.Builder }

const longestHead = 1 << 20

func (h *head) Write(p []byte) (int, error) {
	h.Builder.Write(p[:min(len(p), longestHead-h.Len())])
	return len(p), nil
}

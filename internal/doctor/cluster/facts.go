// Package cluster examines hosts for what a job over them needs. Each host answers
// questions about itself (Inspect) and measures its ways to others (Listen, Probe);
// Check judges the answers, and Report prints them. Package launch carries questions
// and answers.
package cluster

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/version"
)

// Facts are what a host says of itself. Sizes are in bytes; 0 is what could not be
// found out, unlimited is a limit that is none.
type Facts struct {
	Version string
	Program string // this program's file
	Name    string // the host's own
	Kernel  string
	Arch    string

	Cores    int     // that processes may use
	Affinity string  // which these are, such as 0-3,8; empty where that is not known
	Online   int     // cores that there are
	Quota    float64 // processors' worth of time that the control groups have; 0: no limit

	Memory      int64
	MemoryLimit int64 // of the control groups; 0: none
	Shm         int64 // size of /dev/shm
	ShmFree     int64
	Files       int64 // open files (ulimit -n)
	Locked      int64 // locked memory (ulimit -l)
	Ports       int   // that the kernel gives to who asks for any

	Time      time.Time
	Addresses []Address
	GPUs      int

	Python     string            // the interpreter's version; empty: there is none
	Frameworks map[string]string // versions by name
	MPI        string            // first line of mpirun --version
	NCCL       string            // the library's file
}

// Address is one of a host's, but for loopback's.
type Address struct {
	Interface string
	Address   string // without its prefix length
}

// unlimited is a limit that is none.
const unlimited = 1<<63 - 1

// packages are the Python distributions that matter to a job, by the names that
// users know.
var packages = []string{"gorovod", "horovod", "torch", "tensorflow", "tensorflow-cpu", "keras", "jax", "numpy", "cloudpickle", "mpi4py"}

const (
	pythonTimeout = 10 * time.Second
	mpiTimeout    = 5 * time.Second
)

// Inspect collects the facts of this host. python is the file of the interpreter to ask
// for frameworks, env the environment in which it runs.
func Inspect(ctx context.Context, python string, env []string) Facts {
	f := Facts{Version: version.Version, Arch: runtime.GOARCH, Cores: runtime.NumCPU()}
	f.Program, _ = os.Executable()
	f.Name, _ = os.Hostname()
	f.system()
	f.Addresses = addresses()
	f.Python, f.Frameworks = frameworks(ctx, python, env)
	f.MPI = mpi(ctx)
	f.NCCL = nccl()
	f.Time = time.Now()
	return f
}

func addresses() (all []Address) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 || i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
				all = append(all, Address{i.Name, n.IP.String()})
			}
		}
	}
	return all
}

// frameworks asks an interpreter for its version and the packages'. Nothing is
// imported, which would take long.
func frameworks(ctx context.Context, python string, env []string) (version string, found map[string]string) {
	const program = `
import json, sys
try:
    from importlib.metadata import version
except ImportError:
    def version(name):
        raise KeyError(name)
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except Exception:
        pass
print(json.dumps({"python": sys.version.split()[0], "found": found}))
`
	ctx, cancel := context.WithTimeout(ctx, pythonTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, append([]string{"-c", program}, packages...)...)
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		return "", nil
	}
	var answer struct {
		Python string
		Found  map[string]string
	}
	if json.Unmarshal(out, &answer) != nil {
		return "", nil
	}
	return answer.Python, answer.Found
}

func mpi(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, mpiTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "mpirun", "--version").CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// number parses a file with one number; "max" and what is not there are 0.
func number(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

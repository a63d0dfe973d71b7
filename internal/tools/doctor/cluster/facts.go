// Package cluster examines hosts for the needs of a job. Each host answers questions about itself (Inspect) and
// measures its paths to other hosts (Listen, Probe). Check judges the answers, and Report prints them. Package launch
// carries questions and answers.
package cluster

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/load"
	"github.com/gorovod/gorovod/internal/base/version"
)

// Facts are a host's report about itself. Sizes are in bytes; 0 is an unknown size, and unlimited means that there is
// no limit.
type Facts struct {
	Version string
	Program string // this program's file
	Name    string // the host's name for itself
	Kernel  string
	Arch    string

	Cores    int     // cores that processes may use
	Affinity string  // which cores, such as 0-3,8; empty if unknown
	Online   int     // cores of the host
	Quota    float64 // processors' worth of time that the control groups allow; 0: no limit

	Load load.Load

	Memory      int64
	MemoryLimit int64 // of the control groups; 0: none
	Shm         int64 // size of /dev/shm
	ShmFree     int64
	Files       int64 // open files (ulimit -n)
	Locked      int64 // locked memory (ulimit -l)
	Ports       int   // how many ports the kernel has for programs that ask for any port

	Time      time.Time
	Addresses []Address
	GPUs      int

	Asked         string            // the interpreter that was asked for
	Named         bool              // by the user; else it is DefaultPython
	Python        string            // its version; empty: see PythonProblem
	PythonProblem string            // why nothing is known of it
	Frameworks    map[string]string // versions by name
	MPI           string            // first line of mpirun --version
	NCCL          string            // the version that collectives can use; empty: none
	NCCLProblem   string            // why nothing is known of NCCL
	Java          string            // the file of java, which Spark needs; empty: none
}

// Address is an address of a host, except loopback's.
type Address struct {
	Interface string
	Address   string // without its prefix length
}

// DefaultPython is the interpreter that is asked if the user names none.
const DefaultPython = "python3"

// unlimited says that there is no limit.
const unlimited = 1<<63 - 1

const mpiTimeout = 5 * time.Second

// Inspect collects the facts of this host. python is the file of the interpreter to ask for frameworks; env is the
// environment in which it runs.
func Inspect(ctx context.Context, python string, env []string) Facts {
	f := Facts{Version: version.Version, Arch: runtime.GOARCH, Cores: runtime.NumCPU()}
	f.Load = load.Now()
	f.Program, _ = os.Executable()
	f.Name, _ = os.Hostname()
	f.system()
	f.Addresses = addresses()
	asked := AskPython(ctx, python, env)
	f.Python, f.PythonProblem, f.Frameworks = asked.Version, asked.Problem, asked.Packages
	f.NCCL, f.NCCLProblem = asked.NCCL, asked.NCCLProblem
	f.MPI = mpi(ctx)
	f.Java = java()
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

// java finds java as Spark does: in JAVA_HOME, or else in PATH.
func java() string {
	name := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		name = filepath.Join(home, "bin", "java")
	}
	file, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return file
}

// Package cluster examines hosts for what a job over them needs. Each host answers
// questions about itself (Inspect) and measures its ways to others (Listen, Probe);
// Check judges the answers, and Report prints them. Package launch carries questions
// and answers.
package cluster

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
	NCCL       string            // the version that collectives can use; empty: none
	Java       string            // the program's file, which Spark needs
}

// Address is one of a host's, but for loopback's.
type Address struct {
	Interface string
	Address   string // without its prefix length
}

// unlimited is a limit that is none.
const unlimited = 1<<63 - 1

const mpiTimeout = 5 * time.Second

// Inspect collects the facts of this host. python is the file of the interpreter to ask
// for frameworks, env the environment in which it runs.
func Inspect(ctx context.Context, python string, env []string) Facts {
	f := Facts{Version: version.Version, Arch: runtime.GOARCH, Cores: runtime.NumCPU()}
	f.Program, _ = os.Executable()
	f.Name, _ = os.Hostname()
	f.system()
	f.Addresses = addresses()
	asked := AskPython(ctx, python, env)
	f.Python, f.Frameworks, f.NCCL = asked.Version, asked.Packages, asked.NCCL
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

// java finds the program as Spark does: that of JAVA_HOME, else in PATH.
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

// number parses a file with one number; "max" and what is not there are 0.
func number(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

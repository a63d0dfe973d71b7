package cluster

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/cgroup"
)

// system fills in the kernel's facts.
func (f *Facts) system() {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if n, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*"); err == nil {
		f.Online = len(n)
	}
	f.Affinity = field("/proc/self/status", "Cpus_allowed_list:")
	groups := cgroup.Of(os.DirFS("/"))
	f.Quota, f.MemoryLimit = groups.CPUs(), groups.Memory()
	f.Memory = memory()
	f.Ports = ports()
	var s unix.Statfs_t
	if unix.Statfs("/dev/shm", &s) == nil {
		f.Shm, f.ShmFree = int64(s.Blocks)*s.Bsize, int64(s.Bavail)*s.Bsize
	}
	f.Files, f.Locked = limit(unix.RLIMIT_NOFILE), limit(unix.RLIMIT_MEMLOCK)
	if n, err := filepath.Glob("/dev/nvidia[0-9]*"); err == nil {
		f.GPUs = len(n)
	}
}

func limit(what int) int64 {
	var r unix.Rlimit
	if unix.Getrlimit(what, &r) != nil {
		return 0
	}
	if r.Cur >= unlimited {
		return unlimited
	}
	return int64(r.Cur)
}

func memory() int64 {
	kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(field("/proc/meminfo", "MemTotal:"), "kB")), 10, 64)
	return kb << 10
}

// ports is how many ports the kernel has, at each address, for listeners and connections that name no port.
func ports() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	var first, last int
	if n, _ := fmt.Sscan(string(text), &first, &last); n < 2 || last < first {
		return 0
	}
	return last - first + 1
}

// field is the rest of the first line that begins with name, without surrounding blanks; empty if there is none.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

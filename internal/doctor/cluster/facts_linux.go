package cluster

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// system fills in what the kernel says.
func (f *Facts) system() {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if n, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*"); err == nil {
		f.Online = len(n)
	}
	f.Quota = quota()
	f.Memory = memory()
	f.MemoryLimit = number("/sys/fs/cgroup/memory.max")
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

// quota is how many processors' worth of time the control group has, 0 if it may use all.
func quota() float64 {
	text, err := os.ReadFile("/sys/fs/cgroup/cpu.max")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return 0
	}
	most, err := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	if err != nil || err2 != nil || period <= 0 {
		return 0
	}
	return most / period
}

func memory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// nccl is the library's file, where one lies in a usual place.
func nccl() string {
	for _, pattern := range []string{"/usr/lib/*/libnccl.so.*", "/usr/lib64/libnccl.so.*", "/usr/local/lib/libnccl.so.*", "/usr/local/cuda/lib64/libnccl.so.*"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

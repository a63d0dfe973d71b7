package spawn

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sharedDir is where shared memory has its names.
const sharedDir = "/dev/shm"

// family is the set of processes of a rank while the rank is being ended. It removes their shared memory: PyTorch
// passes tensors between processes in files called torch_<pid>_<random>_<n>, and a process that is killed before it has
// removed its file leaves the file for good. One goroutine uses a family.
type family struct {
	pids  map[int]bool
	since time.Time // when the first of them may have begun
}

// newFamily makes a family whose processes begin from now on.
func newFamily() *family {
	// The times of files come from a coarser clock, which lags a little.
	return &family{pids: map[int]bool{}, since: time.Now().Add(-time.Second)}
}

func (f *family) add(pids ...int) {
	for _, p := range pids {
		f.pids[p] = true
	}
}

// tidy removes the files of the family's dead processes. It touches only files of this user, made since the family
// began: another container may share the directory, and have the same pids.
func (f *family) tidy() {
	names, err := filepath.Glob(sharedDir + "/torch_[0-9]*_*")
	if err != nil {
		return
	}
	for _, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, sharedDir+"/torch_"), "_")
		pid, err := strconv.Atoi(number)
		if err != nil || !f.pids[pid] || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		var st unix.Stat_t
		if unix.Lstat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && int(st.Uid) == os.Geteuid() &&
			time.Unix(st.Mtim.Unix()).After(f.since) {
			os.Remove(name)
		}
	}
}

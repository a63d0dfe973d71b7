package launch

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

// family is the set of processes that a rank was when it was being ended. It
// knows what they may have left in shared memory: PyTorch hands tensors from one
// process to another in files called torch_<pid>_<random>_<n>, and one that is
// killed before it has removed the name leaves it for good. One goroutine uses
// a family.
type family struct {
	pids  map[int]bool
	since time.Time // when the first of them may have begun
}

// newFamily is one whose processes begin from now on.
func newFamily() *family {
	// Times of files come from a coarser clock, which is a little late.
	return &family{pids: map[int]bool{}, since: time.Now().Add(-time.Second)}
}

func (f *family) add(pids ...int) {
	for _, p := range pids {
		f.pids[p] = true
	}
}

// tidy removes what those of the family have left that are dead. Only files of
// this user, and made since the family began, are touched: another container
// may share the directory, and have the same pids.
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

package meet

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A writer is a process for good: which run of which machine's kernel, which namespace of process numbers there,
// which number, and when it began. So a later process with the same number is another writer, and one on another
// host or in another container is one of which nothing can be told from here. Empty where the system does not tell.
type writer string

// sight is what all writers that can be seen from here begin with; empty where there are none.
func sight() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid") // pid:[4026531836]
	self, _ := os.Readlink("/proc/self")
	number, named := strings.CutPrefix(namespace, "pid:[")
	if len(boot) == 0 || !named || self != strconv.Itoa(os.Getpid()) { // /proc may be that of another namespace
		return ""
	}
	return strings.ReplaceAll(strings.TrimSpace(string(boot)), "-", "") + "." + strings.TrimSuffix(number, "]") + "."
}

// writerOf is the writer that a process is.
func writerOf(pid int) writer {
	here := sight()
	began, _, ok := life(pid)
	if here == "" || !ok {
		return ""
	}
	return writer(here + strconv.Itoa(pid) + "." + began)
}

// dead says that the writer has ended or is ending. It is false, too, where nothing can be told from here.
func (w writer) dead() bool {
	here := sight()
	rest, seen := strings.CutPrefix(string(w), here)
	number, began, whole := strings.Cut(rest, ".")
	pid, err := strconv.Atoi(number)
	if here == "" || !seen || !whole || err != nil || pid <= 0 {
		return false
	}
	if syscall.Kill(pid, 0) == syscall.ESRCH { // /proc may hide processes
		return true
	}
	now, ending, ok := life(pid)
	return ok && (ending || now != began)
}

// exiting is the kernel's PF_EXITING. It is set before a process's connections are closed, so that who sees these
// end sees it, too.
const exiting = 4

// life is when a process began, in ticks since the machine did, and whether it is a corpse or about to be one; not ok
// where that cannot be read.
func life(pid int) (began string, ending, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false, false
	}
	// The name is in parentheses, and may hold any character.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", false, false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	state := fields[0][0]
	return string(fields[19]), state == 'Z' || state == 'X' || flags&exiting != 0, err == nil
}

package meet

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A writer identifies a process for ever: the run of the machine's kernel, the namespace of process numbers, the
// number, and the time at which the process began. So a later process with the same number is another writer. Of a
// writer on another host or in another container this process can tell nothing. A writer is empty if the system does
// not tell.
type writer string

// sight is the common prefix of all writers that this process can see; empty if it can see none.
func sight() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid") // pid:[4026531836]
	self, _ := os.Readlink("/proc/self")
	number, named := strings.CutPrefix(namespace, "pid:[")
	if len(boot) == 0 || !named || self != strconv.Itoa(os.Getpid()) { // /proc may belong to another namespace
		return ""
	}
	return strings.ReplaceAll(strings.TrimSpace(string(boot)), "-", "") + "." + strings.TrimSuffix(number, "]") + "."
}

// writerOf returns the writer of a process.
func writerOf(pid int) writer {
	here := sight()
	began, _, ok := life(pid)
	if here == "" || !ok {
		return ""
	}
	return writer(here + strconv.Itoa(pid) + "." + began)
}

// dead says that the writer has ended or is ending. It returns false, too, if this process cannot tell.
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

// exiting is the kernel's PF_EXITING. The kernel sets it before it closes a process's connections, so a process that
// sees these end sees the flag, too.
const exiting = 4

// life returns the time at which a process began, in ticks since the machine's start, and whether it is a zombie or
// about to be one. ok is false if these cannot be read.
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

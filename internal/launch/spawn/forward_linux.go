package spawn

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// forwardBelow sends sig to the processes below pid that catch it, and says how many. From a process that catches the
// signal it goes no further down: a wrapper, such as a shell, does not catch it, so the program gets it; workers that
// the program has forked have inherited its handler, which is not meant for them. Without /proc nobody gets it.
func forwardBelow(pid int, sig unix.Signal) (count int) {
	children := processTree()
	next := children[pid]
	for len(next) > 0 {
		p := next[0]
		next = next[1:]
		switch {
		case !catches(p, sig):
			next = append(next, children[p]...)
		case unix.Kill(p, sig) == nil:
			count++
		}
	}
	return count
}

// catches reports whether a process has a handler for sig. A zombie has none any more.
func catches(pid int, sig unix.Signal) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || bytes.HasPrefix(field(status, "State"), []byte("Z")) {
		return false
	}
	mask, err := strconv.ParseUint(string(field(status, "SigCgt")), 16, 64)
	return err == nil && mask&(1<<(uint(sig)-1)) != 0
}

// field is the value of a line of /proc/PID/status.
func field(status []byte, name string) []byte {
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return bytes.TrimSpace(value)
		}
	}
	return nil
}

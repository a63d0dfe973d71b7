package top

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// owner is the user of a process; -1 if that is not known.
func owner(pid int) int {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) != nil {
		return -1
	}
	return int(st.Uid)
}

package jobs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticks is how many units of /proc/PID/stat a second has, on every Linux (USER_HZ).
const ticks = 100

// started is when a process began; zero if that is not known.
func started(pid int) time.Time {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return time.Time{}
	}
	since, err := strconv.ParseInt(fields[19], 10, 64) // since the boot, in ticks
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(since)*time.Second/ticks - time.Duration(now.Nano()))
}

// commandOf is the command line of a process, without the directories of its program.
func commandOf(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "?"
	}
	words := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	words[0] = words[0][strings.LastIndexByte(words[0], '/')+1:]
	return strings.Join(words, " ")
}

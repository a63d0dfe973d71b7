package world

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// processor is the processor time that this process has used, in nanoseconds; 0 if the kernel does not say.
func processor() uint64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return uint64(max(0, u.Utime.Nano()+u.Stime.Nano()))
}

// resident is the number of bytes of this process in memory, 0 if the kernel does not say.
func resident() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(string(fields[1]), 10, 50)
	return pages * uint64(os.Getpagesize())
}

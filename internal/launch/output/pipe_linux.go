package output

import (
	"os"

	"golang.org/x/sys/unix"
)

// mostPipe is the largest pipe, in bytes, that a user may make by default (/proc/sys/fs/pipe-max-size).
const mostPipe = 1 << 20

// enlarge makes a pipe as large as this user may make it. It ignores other files.
func enlarge(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		now, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0)
		if err != nil {
			return // it is no pipe
		}
		for size := mostPipe; size > now; size /= 2 {
			if _, err := unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size); err == nil {
				return
			}
		}
	})
}

package vitals

import "golang.org/x/sys/unix"

// oldSelect is the number of a call that newer architectures do not have.
const oldSelect = unix.SYS_SELECT

func init() {
	for _, number := range []int{unix.SYS_SELECT, unix.SYS_POLL, unix.SYS_EPOLL_WAIT, unix.SYS_OPEN} {
		calls[number] = reading
	}
}

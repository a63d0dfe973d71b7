//go:build cgo && linux

package mpi

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// manager is the connection of this process to a process manager that speaks PMI, such as MPICH's Hydra. The process
// manager takes a process that ends without a last word for a crash, and kills the others. Since 4.2 MPICH sends that
// word when C's exit is called. A program whose main is Go's never calls it.
type manager struct {
	fd     int
	socket unix.Stat_t // the file of fd before MPI was initialised
}

// connectedManager returns nil if there is no process manager.
func connectedManager() *manager {
	fd, err := strconv.Atoi(os.Getenv("PMI_FD"))
	if err != nil || fd < 0 {
		return nil
	}
	m := &manager{fd: fd}
	if unix.Fstat(fd, &m.socket) != nil || m.socket.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil
	}
	return m
}

// goodbyeTime bounds the wait for the process manager's answer.
const goodbyeTime = 2 * time.Second

// goodbye sends the last word if MPI has left the connection open; MPI sends no more after Finalize. It waits for the
// answer, because a message of a process that has ended may come too late.
func (m *manager) goodbye() {
	var now unix.Stat_t
	if m == nil || unix.Fstat(m.fd, &now) != nil || now.Dev != m.socket.Dev || now.Ino != m.socket.Ino {
		return // MPI has closed it, and another file may have its number
	}
	if _, err := unix.SendmsgN(m.fd, []byte("cmd=finalize\n"), nil, nil,
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != nil {
		return
	}
	answer := make([]byte, 256)
	for end := time.Now().Add(goodbyeTime); ; {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err == unix.EINTR || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return
		}
		if n, _, err = unix.Recvfrom(m.fd, answer, unix.MSG_DONTWAIT); err != nil && err != unix.EAGAIN || n == 0 ||
			bytes.IndexByte(answer[:max(0, n)], '\n') >= 0 {
			return
		}
	}
}

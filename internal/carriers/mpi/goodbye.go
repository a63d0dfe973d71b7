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

// open reports that MPI has left the connection open. It is false where there is none.
func (m *manager) open() bool {
	var now unix.Stat_t
	return m != nil && unix.Fstat(m.fd, &now) == nil && now.Dev == m.socket.Dev && now.Ino == m.socket.Ino
}

func (m *manager) say(command string) error {
	_, err := unix.SendmsgN(m.fd, []byte("cmd="+command+"\n"), nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	return err
}

// barrier waits until all processes of the job have called it, outside MPI, and reports whether they have. It sleeps
// for as long as the last one takes, as MPI_Finalize waits, too; the process manager ends this process if another one
// dies.
func (m *manager) barrier() bool {
	return m.open() && m.say("barrier_in") == nil && m.await("barrier_out", 0)
}

// goodbyeTime bounds how long the process manager's answer is waited for.
const goodbyeTime = 2 * time.Second

// goodbye sends the last word if MPI has left the connection open; MPI sends no more after Finalize. It waits for the
// answer, because a message of a process that has ended may come too late.
func (m *manager) goodbye() {
	if m.open() && m.say("finalize") == nil {
		m.await("finalize_ack", goodbyeTime)
	}
}

// await reads up to an answer, for at most limit unless that is 0. It is false if the connection ends before.
func (m *manager) await(answer string, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	buf := make([]byte, 256)
	for said := []byte(nil); ; {
		wait := -1
		if limit > 0 {
			wait = int(time.Until(deadline).Milliseconds()) + 1
			if wait <= 0 {
				return false
			}
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLIN}}, wait)
		if err == unix.EINTR || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return false
		}
		n, _, err = unix.Recvfrom(m.fd, buf, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return false
		}
		said = append(said, buf[:n]...)
		for end := bytes.IndexByte(said, '\n'); end >= 0; end = bytes.IndexByte(said, '\n') {
			if bytes.HasPrefix(said, []byte("cmd="+answer)) {
				return true
			}
			said = said[end+1:]
		}
	}
}

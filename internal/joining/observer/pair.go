package observer

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// pair returns the two ends of a socket, neither of which another program inherits.
func pair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "observer"), os.NewFile(uintptr(fds[1]), "observer"), nil
}

// apart starts a process in a session of its own, so that neither a Ctrl-C nor a launcher that ends a rank's process
// group ends the observer before rank 0.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// descriptor is that of c; -1 if it has none.
func descriptor(c net.Conn) int {
	fd := -1
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			raw.Control(func(n uintptr) { fd = int(n) })
		}
	}
	return fd
}

// beside are the places of the command for a library or program at file: bin/gorovod and lib/libgorovod.so in a wheel,
// one directory for both in a build.
func beside(file string) []string {
	dir := filepath.Dir(file)
	return []string{filepath.Join(filepath.Dir(dir), "bin", "gorovod"), filepath.Join(dir, "gorovod")}
}

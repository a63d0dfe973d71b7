package peercred

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Of returns the process at the other end, which has connected or listens, with its user.
func Of(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		return nil, e
	}
	return cred, err
}

// Trusted reports whether this user or root is at the other end.
func Trusted(c *net.UnixConn) bool {
	cred, err := Of(c)
	return err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Getuid())
}

package spawn

import (
	"os"

	"golang.org/x/sys/unix"
)

// inMemory is an unnamed file with these bytes.
func inMemory(name string, b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("gorovod-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

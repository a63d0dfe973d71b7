package spawn

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"unsafe" // also for linkname

	"golang.org/x/sys/unix"
)

// RunningProgram is the file of the running program, even if the file was renamed. Without /proc, it is the name by
// which the kernel started the program.
var RunningProgram = sync.OnceValues(func() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Lstat(self); err == nil {
		return self, nil
	}
	auxv := getAuxv()
	for i := 0; i+1 < len(auxv); i += 2 {
		if auxv[i] != atExecFn {
			continue
		}
		name := unix.BytePtrToString(*(**byte)(unsafe.Pointer(&auxv[i+1])))
		if path, err := filepath.Abs(name); err == nil {
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
	}
	return "", errors.New("it cannot find its own program, as /proc is not mounted here: `mount -t proc proc " +
		"/proc` mounts it")
})

// atExecFn is the key of the file's name in the auxiliary vector (AT_EXECFN).
const atExecFn = 31

//go:linkname getAuxv runtime.getAuxv
func getAuxv() []uintptr

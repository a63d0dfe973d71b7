// Package gpu builds a stand-in for GPUs, with which tests run the code for CUDA and NCCL on any machine: libcuda.so.1
// and libnccl.so.2, written in C (folder standin). The stand-in checks each call, and ends the process with status 99
// and a report of a mistake that a real GPU might not show:
//
//   - the CPU touches memory of a device
//   - two accesses to the same memory, of which one writes, that no event and no stream orders
//   - use of memory, an event, a stream or a communicator that has been freed, or that never was one
//   - memory that is freed, or an end of the process, while something is in use or left
//   - members of a communicator that disagree about an operation or about their order
//   - operations of two communicators on one device that no event and no stream orders
//   - calls that NCCL's rules forbid: in progress, after an abort, outside a group, with a wrong config
//
// Streams run their work after random delays, events and communicators answer late, and each function can be made to
// fail, to hang, or to kill the process. The files in standin say which variables control this.
package gpu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// StatusReported is the exit status of a process in which the stand-in has found something.
const StatusReported = 99

// flags are the compiler's flags for all that is built here.
var flags = []string{"-std=gnu2x", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"}

// Build compiles the stand-in from its sources in one folder into another folder. more has further flags of the
// compiler.
func Build(sources, into string, more ...string) error {
	libcuda := filepath.Join(into, "libcuda.so.1")
	for _, library := range []struct {
		path  string
		files []string
	}{
		{libcuda, []string{"report.c", "stream.c", "memory.c", "copy.c", "driver.c"}},
		{filepath.Join(into, "libnccl.so.2"), []string{"comm.c", "group.c", "round.c", "reduce.c"}},
	} {
		arguments := []string{"-fPIC", "-fvisibility=hidden", "-shared", "-Wl,-soname," + filepath.Base(library.path),
			"-Wl,-rpath,$ORIGIN"}
		for _, f := range library.files {
			arguments = append(arguments, filepath.Join(sources, f))
		}
		if library.path != libcuda {
			arguments = append(arguments, libcuda, "-lm")
		}
		if err := Compile(library.path, append(arguments, more...)...); err != nil {
			return err
		}
	}
	return nil
}

// Compile compiles C with the flags of this package.
func Compile(into string, arguments ...string) error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	all := append(append(append([]string{}, flags...), "-o", into), arguments...)
	if out, err := exec.Command(compiler, all...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", compiler, all, err, out)
	}
	return nil
}

package vitals

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// thread is the main thread, as /proc shows it.
type thread struct {
	file  *os.File // syscall
	stats *os.File // schedstat; nil if the kernel has none
	text  [256]byte
}

func openThread() (*thread, error) {
	f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/syscall", os.Getpid()))
	if err != nil {
		return nil, err
	}
	t := &thread{file: f}
	if _, err := f.ReadAt(t.text[:], 0); err != nil && err != io.EOF {
		f.Close()
		return nil, err
	}
	t.stats, _ = os.Open(schedstat)
	return t, nil
}

func (t *thread) close() {
	t.file.Close()
	t.stats.Close()
}

// ran is how long the thread has had a core, in nanoseconds; 0 if the kernel does not tell.
func (t *thread) ran() uint64 {
	n, err := t.stats.ReadAt(t.text[:], 0)
	if err != nil && err != io.EOF {
		return 0
	}
	running, _ := times(t.text[:n])
	return running
}

// does says what the thread does now.
func (t *thread) does() doing {
	n, err := t.file.ReadAt(t.text[:], 0)
	if err != nil && err != io.EOF {
		return other
	}
	return meaning(t.text[:n])
}

// meaning interprets a line of /proc/PID/task/TID/syscall: "running", or the number of the call and its arguments, or
// -1 if the thread is blocked outside of a call.
func meaning(line []byte) doing {
	fields := bytes.Fields(line)
	if len(fields) < 2 {
		return other
	}
	number, err := strconv.Atoi(string(fields[0]))
	if err != nil {
		return other
	}
	if number < 0 { // it waits for a page
		return reading
	}
	switch does := calls[number]; {
	case does == reading && (number == unix.SYS_PSELECT6 || number == oldSelect) && string(fields[1]) == "0x0":
		return asleep // select without descriptors only waits
	default:
		return does
	}
}

// calls are the calls in which a thread waits.
var calls = map[int]doing{
	unix.SYS_CLOCK_NANOSLEEP: asleep, unix.SYS_NANOSLEEP: asleep,
	unix.SYS_FUTEX: locked, sysFutexWaitv: locked,
	unix.SYS_READ: reading, unix.SYS_READV: reading, unix.SYS_PREAD64: reading, unix.SYS_PREADV: reading,
	unix.SYS_RECVFROM: reading, unix.SYS_RECVMSG: reading, unix.SYS_PSELECT6: reading, unix.SYS_PPOLL: reading,
	unix.SYS_EPOLL_PWAIT: reading, unix.SYS_WAIT4: reading, unix.SYS_WAITID: reading, unix.SYS_OPENAT: reading,
	unix.SYS_ACCEPT4: reading, unix.SYS_CONNECT: reading, unix.SYS_FSYNC: reading, unix.SYS_GETDENTS64: reading,
}

// sysFutexWaitv has this number on all architectures.
const sysFutexWaitv = 449

// scheduled is how long the main thread has had a core, and has waited for one, in nanoseconds.
func scheduled() (running, starved uint64) {
	text, err := os.ReadFile(schedstat)
	if err != nil {
		return 0, 0
	}
	return times(text)
}

// schedstat is about the main thread.
const schedstat = "/proc/self/schedstat"

// times reads the first two numbers of schedstat.
func times(text []byte) (running, starved uint64) {
	if fields := bytes.Fields(text); len(fields) > 1 {
		running, _ = strconv.ParseUint(string(fields[0]), 10, 62)
		starved, _ = strconv.ParseUint(string(fields[1]), 10, 62)
	}
	return running, starved
}

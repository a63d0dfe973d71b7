package flight

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// prefix is how the sockets are called, before the process id; a further number tells
// the worlds of one process apart. They are abstract: nothing is left of them.
const prefix = "gorovod/flight/"

// patience bounds each step of asking a rank.
const patience = 2 * time.Second

// Listen opens this process's socket.
func Listen() (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@%s%d/%d", prefix, os.Getpid(), time.Now().UnixNano()), Net: "unix"})
}

// Serve answers who asks, if he is this user or root, until the listener is closed.
func Serve(l *net.UnixListener, dump func() *Dump) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, say
			time.Sleep(patience / 10)
			continue
		}
		c.SetDeadline(time.Now().Add(patience))
		if trusted(c) {
			dump().Write(c)
		}
		c.Close()
	}
}

// trusted reports whether this user or root is at the other end.
func trusted(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Getuid())
}

// Ask asks the ranks on this host that belong to the job of a process: the launcher's,
// a supervisor's or a rank's. silent are those below it that do not answer.
func Ask(pid int) (dumps []*Dump, silent []Silent, err error) {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, nil, err
	}
	job := ""
	all := map[string][]*Dump{}
	asked := map[string]bool{} // connections that a process has not accepted are called as its socket
	answers := map[int]bool{}  // of the processes below: whether one of their worlds has
	for _, line := range strings.Split(string(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) != 8 || !strings.HasPrefix(fields[7], "@"+prefix) {
			continue
		}
		if asked[fields[7]] {
			continue
		}
		asked[fields[7]] = true
		d, err := askOne(fields[7])
		if err == nil {
			all[d.Job] = append(all[d.Job], d)
		}
		owner, _, _ := strings.Cut(strings.TrimPrefix(fields[7], "@"+prefix), "/")
		if n, notNumber := strconv.Atoi(owner); notNumber == nil && below(n, pid) {
			answers[n] = answers[n] || err == nil
			if err == nil {
				job = d.Job
			}
		}
	}
	for n, answered := range answers {
		if !answered {
			silent = append(silent, silentOf(n))
		}
	}
	slices.SortFunc(silent, func(a, b Silent) int { return a.PID - b.PID })
	switch {
	case job == "" && len(silent) > 0:
		return nil, nil, fmt.Errorf("no rank of process %d answers: %s", pid, silent[0].Why())
	case job == "":
		return nil, nil, fmt.Errorf("no rank on this host that answers belongs to process %d", pid)
	}
	return all[job], silent, nil
}

func askOne(name string) (*Dump, error) {
	c, err := net.DialTimeout("unix", name, patience)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	return Read(c)
}

// below reports whether a process is another one or descends from it.
func below(pid, ancestor int) bool {
	for range 64 {
		if pid == ancestor {
			return true
		}
		fields := stat(pid)
		if len(fields) < 2 {
			return false
		}
		var err error
		if pid, err = strconv.Atoi(fields[1]); err != nil || pid <= 1 {
			return pid == ancestor
		}
	}
	return false
}

// stat is what the system tells of a process, from its state on; nil where there is none.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

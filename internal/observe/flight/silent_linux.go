package flight

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// silentOf is the system's information on a process that does not answer, or whose answer is too long.
func silentOf(pid int, tooLong bool) Silent {
	state := state(pid)
	s := Silent{PID: pid, Rank: -1, TooLong: tooLong, Stopped: state == "T" || state == "t", Owner: otherOwner(pid)}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return s
	}
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, _ := bytes.Cut(variable, []byte{'='})
		switch string(name) {
		case "GOROVOD_ELASTIC_WORKER": // the worker's rank changes
			s.Rank = -1
			return s
		case "HOROVOD_RANK":
			if n, err := strconv.Atoi(string(value)); err == nil {
				s.Rank = n
			}
		}
	}
	return s
}

// otherOwner is the user who owns a process; empty if it is this user, or if this user is root.
func otherOwner(pid int) string {
	var st unix.Stat_t
	me := os.Geteuid()
	if unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) != nil || me == 0 || int(st.Uid) == me {
		return ""
	}
	id := strconv.Itoa(int(st.Uid))
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// state is the letter for a process's state; empty if there is no such process.
func state(pid int) string {
	if fields := stat(pid); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

package flight

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// silentOf is what the system knows of a process that does not answer, or whose answer is too long.
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
		case "GOROVOD_ELASTIC_WORKER": // its rank changes
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

// otherOwner is the user to whom a process belongs, empty where it is this one, or this one is root.
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

// state is the letter for what a process does, empty where there is no such process.
func state(pid int) string {
	if fields := stat(pid); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

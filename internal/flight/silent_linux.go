package flight

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// silentOf is what the system knows of a process that does not answer.
func silentOf(pid int) Silent {
	state := state(pid)
	s := Silent{PID: pid, Rank: -1, Stopped: state == "T" || state == "t"}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return s
	}
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, _ := bytes.Cut(variable, []byte{'='})
		switch string(name) {
		case "GOROVOD_ELASTIC_WORKER": // its rank changes
			return Silent{PID: pid, Rank: -1, Stopped: s.Stopped}
		case "HOROVOD_RANK":
			if n, err := strconv.Atoi(string(value)); err == nil {
				s.Rank = n
			}
		}
	}
	return s
}

// state is the letter for what a process does, empty where there is no such process.
func state(pid int) string {
	if fields := stat(pid); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

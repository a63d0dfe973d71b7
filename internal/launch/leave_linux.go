package launch

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// agentsHere lists the agents on this host that run this very program, by their pids. A host is a network namespace, so
// the agents of a container belong to another host than those of the machine that it runs on.
func agentsHere() (pids []int, err error) {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	network, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// An error means that the process has ended, or is another user's.
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if words := bytes.Split(line, []byte{0}); err != nil || len(words) != 3 || string(words[1]) != "agent" {
			continue
		}
		program, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !os.SameFile(program, self) {
			continue
		}
		if n, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && os.SameFile(n, network) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

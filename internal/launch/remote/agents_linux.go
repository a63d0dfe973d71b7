package remote

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// AgentsHere lists the pids of the agents on this host. An agent is any program with this program's name, wherever it
// is installed, because a job may use another installation than the hook that calls gorovod leave. A host is a network
// namespace, so the agents in a container are not on the host of its machine.
func AgentsHere() (pids []int, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	names := []string{"gorovod", "horovodrun", filepath.Base(self)}
	network, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry)
		if err != nil {
			continue
		}
		// An error means that the process has ended, or is another user's.
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if words := bytes.Split(line, []byte{0}); err != nil || len(words) != 3 || string(words[1]) != "agent" {
			continue
		}
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !slices.Contains(names, strings.TrimSuffix(filepath.Base(program), " (deleted)")) {
			continue
		}
		if n, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && os.SameFile(n, network) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

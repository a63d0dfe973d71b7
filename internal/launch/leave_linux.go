package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// agentsHere lists the agents on this host, by their pids: of a program of this name, wherever it is installed, since a
// job may have another installation than the one that a hook finds. A host is a network namespace, so the agents of a
// container belong to another host than those of the machine that it runs on.
func agentsHere() (pids []int, err error) {
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

package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	groupRoot = "/sys/fs/cgroup"
	// groupPrefix begins the names of the tests' control groups; a process follows.
	groupPrefix = "gorovod-pods-"
	// period is the time, in µs, to which a limit of CPU time refers. It is the kubelet's.
	period = 100_000
	// groupPatience is how long a group may take to become empty.
	groupPatience = 10 * time.Second
)

// groups makes the control groups of pods, of version 1 or 2. Below the test's own group, each pod has one, with one
// for its container.
type groups struct {
	limits  Limits
	tops    []string // the test's groups: one for each hierarchy
	unified bool     // version 2
	named   []string // of version 1: the controllers of each hierarchy, as in "cpu,cpuacct"
	trouble error    // why there are none
}

// tests counts those of this process.
var tests atomic.Int64

func newGroups(limits Limits) *groups {
	g := &groups{limits: limits}
	if limits == (Limits{}) {
		g.trouble = errors.New("they have no limits")
		return g
	}
	if g.trouble = g.make(); g.trouble != nil {
		g.trouble = fmt.Errorf("control groups: %w", g.trouble)
		g.remove()
		g.tops = nil
	}
	return g
}

// make makes the test's own groups.
func (g *groups) make() error {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	var parents []string
	if there, err := os.ReadFile(filepath.Join(groupRoot, "cgroup.subtree_control")); err == nil {
		has := strings.Fields(string(there))
		if !slices.Contains(has, "cpu") || !slices.Contains(has, "memory") {
			return fmt.Errorf("%s gives its groups no cpu and memory, but %q", groupRoot, has)
		}
		g.unified, parents = true, []string{groupRoot}
	} else {
		for line := range strings.Lines(string(own)) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			has := strings.Split(fields[1], ",")
			if slices.Contains(has, "cpu") || slices.Contains(has, "memory") {
				g.named = append(g.named, fields[1])
				parents = append(parents, filepath.Join(groupRoot, fields[1], fields[2]))
			}
		}
		if len(parents) == 0 {
			return fmt.Errorf("%s has neither version", groupRoot)
		}
	}
	name := fmt.Sprintf("%s%d-%d", groupPrefix, os.Getpid(), tests.Add(1))
	for _, parent := range parents {
		sweep(parent)
		top := filepath.Join(parent, name)
		if err := os.Mkdir(top, 0o755); err != nil {
			return err
		}
		g.tops = append(g.tops, top)
		if g.unified {
			if err := pass(top); err != nil {
				return err
			}
		}
	}
	return nil
}

// pass lets the groups below one have limits (version 2).
func pass(group string) error {
	return os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+cpu +memory"), 0)
}

// sweep removes the groups of tests that were killed.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*"))
	for _, top := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(top), groupPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			removeTree(top)
		}
	}
}

// container makes the groups of a pod and its container, and returns the container's, separated by blanks; empty where
// there are none.
func (g *groups) container(pod string) (string, error) {
	var made []string
	for i, top := range g.tops {
		pod := filepath.Join(top, "pod"+pod)
		if err := os.Mkdir(pod, 0o755); err != nil {
			return "", err
		}
		if g.unified {
			if err := pass(pod); err != nil {
				return "", err
			}
		}
		container := filepath.Join(pod, "container")
		if err := os.Mkdir(container, 0o755); err != nil {
			return "", err
		}
		for file, text := range g.settings(i) {
			if err := os.WriteFile(filepath.Join(container, file), []byte(text), 0); err != nil {
				return "", err
			}
		}
		made = append(made, container)
	}
	return strings.Join(made, " "), nil
}

// settings are the files of a container's group that have its limits.
func (g *groups) settings(hierarchy int) map[string]string {
	files := map[string]string{}
	quota, memory := fmt.Sprint(int64(g.limits.CPUs*period)), fmt.Sprint(g.limits.Memory)
	has := func(controller string) bool {
		return !g.unified && slices.Contains(strings.Split(g.named[hierarchy], ","), controller)
	}
	if g.limits.CPUs > 0 && g.unified {
		files["cpu.max"] = quota + " " + fmt.Sprint(period)
	} else if g.limits.CPUs > 0 && has("cpu") {
		files["cpu.cfs_quota_us"] = quota
	}
	if g.limits.Memory > 0 && g.unified {
		files["memory.max"] = memory
	} else if g.limits.Memory > 0 && has("memory") {
		files["memory.limit_in_bytes"] = memory
	}
	return files
}

// mounts is the shell script that lets a container see its own groups, and no others.
func (g *groups) mounts() string {
	if g.unified {
		return "mount -t cgroup2 cgroup " + groupRoot + "\n"
	}
	script := "mount -t tmpfs -o mode=755 cgroup " + groupRoot + "\n"
	for _, named := range g.named {
		script += fmt.Sprintf("mkdir %[1]s/%[2]s\nmount -t cgroup -o %[2]s cgroup %[1]s/%[2]s\n", groupRoot, named)
		for one := range strings.SplitSeq(named, ",") {
			if one != named {
				script += fmt.Sprintf("ln -s %s %s/%s\n", named, groupRoot, one)
			}
		}
	}
	return script
}

// remove removes all groups, once their processes have ended.
func (g *groups) remove() error {
	for _, top := range g.tops {
		for end := time.Now().Add(groupPatience); ; time.Sleep(10 * time.Millisecond) {
			err := removeTree(top)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("a pod's control group is left behind: %w", err)
			}
		}
	}
	return nil
}

// removeTree removes a group and those below it.
func removeTree(top string) error {
	var all []string
	filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	for _, group := range slices.Backward(all) {
		if err := syscall.Rmdir(group); err != nil {
			return &fs.PathError{Op: "rmdir", Path: group, Err: err}
		}
	}
	return nil
}

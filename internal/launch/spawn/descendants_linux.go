package spawn

import (
	"bytes"
	"os"
	"slices"
	"strconv"
)

// Descendants lists all processes below pid, zombies too, in no order, without those in except and below them. It
// misses processes that are forked meanwhile: to get all, ask until there are none.
func Descendants(pid int, except ...int) []int {
	children := processTree()
	var found []int
	next := []int{pid}
	for len(next) > 0 {
		p := next[0]
		next = next[1:]
		for _, c := range children[p] {
			if !slices.Contains(except, c) {
				found = append(found, c)
				next = append(next, c)
			}
		}
	}
	return found
}

// processTree lists the children of each process of this host; nil if /proc cannot be read.
func processTree() map[int][]int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, name := range names {
		p, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The command's name, in parentheses, may contain anything; the state
		// and the parent follow the last one.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			children[parent] = append(children[parent], p)
		}
	}
	return children
}

// hasProc reports whether /proc is mounted. Without it descendants cannot be found.
func hasProc() bool {
	_, err := os.Lstat("/proc/self")
	return err == nil
}

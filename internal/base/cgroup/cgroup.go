// Package cgroup says what control groups allow this process: its own group, and those above it, of version 1, of
// version 2, or of both at a time. It only reads, and takes what it cannot read or understand for no limit.
package cgroup

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// unlimited is the least amount that is no limit. Version 1 says so where it has none, since it has no word for it.
const unlimited = 1 << 62

// Groups are the control groups that can limit this process.
type Groups struct {
	root    fs.FS
	unified []string            // directories of version 2
	named   map[string][]string // directories of version 1, by controller
}

// Of finds the groups of this process; root is the file system, with /proc.
func Of(root fs.FS) Groups {
	g := Groups{root: root, named: map[string][]string{}}
	own, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return g
	}
	mounts := mounts(root)
	for line := range strings.Lines(string(own)) {
		// A hierarchy's number, its controllers, and the group: "4:cpu,cpuacct:/a/b", or "0::/a/b" for version 2.
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		if fields[0] == "0" && fields[1] == "" {
			g.unified = directories(fields[2], mounts, func(m mount) bool { return m.kind == "cgroup2" })
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			g.named[controller] = directories(fields[2], mounts, func(m mount) bool {
				return m.kind == "cgroup" && slices.Contains(m.options, controller)
			})
		}
	}
	return g
}

// CPUs is how many processors' worth of time the groups allow; 0 if they have no limit.
func (g Groups) CPUs() (least float64) {
	for _, dir := range g.unified {
		if words := g.words(dir, "cpu.max"); len(words) == 2 {
			least = lower(least, ratio(words[0], words[1]))
		}
	}
	for _, dir := range g.named["cpu"] {
		quota, period := g.words(dir, "cpu.cfs_quota_us"), g.words(dir, "cpu.cfs_period_us")
		if len(quota) == 1 && len(period) == 1 {
			least = lower(least, ratio(quota[0], period[0]))
		}
	}
	return least
}

// Memory is how many bytes of memory the groups allow; 0 if they have no limit.
func (g Groups) Memory() int64 { return g.amount("memory", "memory.max", "memory.limit_in_bytes") }

// Tasks is how many processes and threads the groups allow; 0 if they have no limit.
func (g Groups) Tasks() int64 { return g.amount("pids", "pids.max", "pids.max") }

// amount is the least of the controller's limits, which are in the file called unified in version 2, and in the one
// called named in version 1.
func (g Groups) amount(controller, unified, named string) (least int64) {
	take := func(file string, dirs []string) {
		for _, dir := range dirs {
			words := g.words(dir, file)
			if len(words) != 1 {
				continue
			}
			// "max" is no number, and no limit.
			if n, err := strconv.ParseInt(words[0], 10, 64); err == nil && n < unlimited {
				least = lower(least, n)
			}
		}
	}
	take(unified, g.unified)
	take(named, g.named[controller])
	return least
}

// words are those of a file in a group's directory; none if it is not there.
func (g Groups) words(dir, file string) []string {
	text, err := fs.ReadFile(g.root, path.Join(dir, file))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// ratio is a quota by its period; 0 if there is no quota, which version 2 calls "max", and version 1 -1.
func ratio(quota, period string) float64 {
	q, err := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err != nil || err2 != nil || p <= 0 {
		return 0
	}
	return q / p
}

// lower is the lower one of two limits, of which those that are not above 0 are none.
func lower[T int64 | float64](a, b T) T {
	if b <= 0 || a > 0 && a < b {
		return a
	}
	return b
}

// mount is a mounted hierarchy of control groups, or a part of one.
type mount struct {
	top     string   // the group that is at the mount point
	point   string   // the mount point, as fs.FS writes paths
	kind    string   // cgroup or cgroup2
	options []string // of version 1: the controllers, among others
}

// mounts are the mounted hierarchies.
func mounts(root fs.FS) (all []mount) {
	text, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		// 36 35 0:30 TOP POINT rw,nosuid shared:9 - KIND source OPTIONS
		// There may be any number of fields before the hyphen.
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		place, system := strings.Fields(before), strings.Fields(after)
		if len(place) < 5 || len(system) < 3 || system[0] != "cgroup" && system[0] != "cgroup2" {
			continue
		}
		point := strings.TrimPrefix(path.Clean(unescape(place[4])), "/")
		all = append(all, mount{path.Clean(unescape(place[3])), point, system[0], strings.Split(system[2], ",")})
	}
	return all
}

// directories are those of a group and of the ones above it, as far up as the mounts of its hierarchy show them. A
// process may be in a group that no mount shows, such as one of the host beside its container's. Then the groups at the
// mount points are taken, since they are the container's.
func directories(group string, mounts []mount, of func(mount) bool) (dirs []string) {
	var points []string
	for _, m := range mounts {
		if !of(m) {
			continue
		}
		points = append(points, m.point)
		below, ok := strings.CutPrefix(path.Clean(group), strings.TrimSuffix(m.top, "/"))
		if !ok || below != "" && below[0] != '/' {
			continue
		}
		for below = path.Clean("/" + below); ; below = path.Dir(below) {
			dirs = append(dirs, path.Join(m.point, below))
			if below == "/" {
				break
			}
		}
	}
	if dirs == nil {
		return points
	}
	return dirs
}

// unescape undoes the kernel's escapes of blanks and backslashes: \040 is a blank.
func unescape(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}

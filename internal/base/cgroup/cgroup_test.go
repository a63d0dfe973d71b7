package cgroup

import (
	"testing"
	"testing/fstest"
)

const (
	unifiedMount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	// A systemd of some years ago: version 1, and version 2 without controllers.
	hybridMounts = "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n" +
		"32 31 0:29 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw\n" +
		"33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:6 - cgroup cgroup rw,cpu,cpuacct\n" +
		"34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" +
		"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"36 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	hybridGroups = "5:pids:/a\n4:memory:/a/b\n3:cpuset:/\n2:cpu,cpuacct:/a/b\n1:name=systemd:/a\n0::/a/b\n"
	// Docker without a namespace of control groups: each mount shows the container's own group.
	containerMounts = "40 31 0:30 /docker/c /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n" +
		"41 31 0:32 /docker/c /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
	noLimit = "9223372036854771712" // how version 1 says it
)

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name           string
		groups, mounts string
		files          map[string]string // below /sys/fs/cgroup, if the path does not begin with /
		cpus           float64
		memory, tasks  int64
	}{
		{name: "nothing is known"},
		{name: "no mounts", groups: "0::/\n", files: map[string]string{"cpu.max": "100000 100000"}},
		{name: "no groups", mounts: unifiedMount, files: map[string]string{"cpu.max": "100000 100000"}},
		{name: "no files", groups: "0::/a\n", mounts: unifiedMount},
		{name: "max", groups: "0::/\n", mounts: unifiedMount,
			files: map[string]string{"cpu.max": "max 100000\n", "memory.max": "max\n", "pids.max": "max\n"}},
		{name: "a container", groups: "0::/\n", mounts: unifiedMount,
			files: map[string]string{"cpu.max": "150000 100000\n", "memory.max": "1048576\n", "pids.max": "99\n"},
			cpus:  1.5, memory: 1 << 20, tasks: 99},
		{name: "less than a processor", groups: "0::/\n", mounts: unifiedMount,
			files: map[string]string{"cpu.max": "20000 100000\n"}, cpus: 0.2},
		{name: "a period of another length", groups: "0::/\n", mounts: unifiedMount,
			files: map[string]string{"cpu.max": "100000 50000\n"}, cpus: 2},
		{name: "nonsense", groups: "nonsense\n0::/\n",
			mounts: "nonsense\n1 2 3 - 4\n1 2 - cgroup2 x rw\n" + unifiedMount,
			files:  map[string]string{"cpu.max": "100000\n", "memory.max": "much\n", "pids.max": ""}},
		{name: "a period of 0", groups: "0::/\n", mounts: unifiedMount,
			files: map[string]string{"cpu.max": "100000 0\n"}},
		{name: "the slice above limits", groups: "0::/a.slice/b.scope\n", mounts: unifiedMount,
			files: map[string]string{"a.slice/cpu.max": "100000 100000\n", "a.slice/b.scope/cpu.max": "max 100000\n",
				"a.slice/memory.max": "4096\n", "a.slice/b.scope/memory.max": "8192\n", "a.slice/pids.max": "max\n"},
			cpus: 1, memory: 4096},
		{name: "its own slice limits", groups: "0::/a.slice/b.scope\n", mounts: unifiedMount,
			files: map[string]string{"a.slice/cpu.max": "400000 100000\n",
				"a.slice/b.scope/cpu.max": "300000 100000\n", "other.slice/cpu.max": "100000 100000\n"}, cpus: 3},
		{name: "mounted elsewhere", groups: "0::/a\n",
			mounts: `30 23 0:26 / /my\040groups rw - cgroup2 none rw` + "\n",
			files:  map[string]string{"/my groups/a/cpu.max": "100000 100000\n", "a/cpu.max": "50000 100000\n"},
			cpus:   1},
		{name: "a part is mounted", groups: "0::/pods/p/c\n",
			mounts: "30 23 0:26 /pods/p /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
			files:  map[string]string{"cpu.max": "200000 100000\n", "c/cpu.max": "max 100000\n"}, cpus: 2},
		{name: "a part with a similar name is mounted, too", groups: "0::/pods/pq\n",
			mounts: "30 23 0:26 /pods/p /p rw - cgroup2 cgroup rw\n" + unifiedMount,
			files:  map[string]string{"/p/cpu.max": "100000 100000\n", "/p/q/cpu.max": "100000 100000\n"}},
		{name: "a group that no mount shows", groups: "0::/../other\n",
			mounts: "30 23 0:26 /pods /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
			files:  map[string]string{"cpu.max": "200000 100000\n"}, cpus: 2},
		{name: "mounted outside of its namespace", groups: "0::/\n",
			mounts: "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
			files:  map[string]string{"memory.max": "4096\n"}, memory: 4096},
		{name: "version 2 is there, and version 1 limits", groups: hybridGroups, mounts: hybridMounts,
			files: map[string]string{"cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1\n",
				"cpu,cpuacct/a/b/cpu.cfs_period_us": "100000\n", "cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
				"cpu,cpuacct/a/cpu.cfs_period_us": "100000\n", "memory/a/b/memory.limit_in_bytes": "4096\n",
				"memory/memory.limit_in_bytes": noLimit, "pids/a/pids.max": "77\n",
				"pids/a/b/pids.max": "7\n"}, // another process's, though version 2 has this one in /a/b
			cpus: 0.5, memory: 4096, tasks: 77},
		{name: "version 1 is there, and version 2 limits", groups: hybridGroups, mounts: hybridMounts,
			files: map[string]string{"cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1\n",
				"cpu,cpuacct/a/b/cpu.cfs_period_us": "100000\n", "unified/a/b/cpu.max": "300000 100000\n",
				"memory/a/b/memory.limit_in_bytes": noLimit, "unified/a/memory.max": "8192\n"},
			cpus: 3, memory: 8192},
		{name: "a container of version 1", groups: "4:memory:/docker/c\n2:cpu:/docker/c\n", mounts: containerMounts,
			files: map[string]string{"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n",
				"memory/memory.limit_in_bytes": "4096\n"}, cpus: 2, memory: 4096},
		{name: "version 1 without a limit", groups: "4:memory:/docker/c\n2:cpu:/docker/c\n", mounts: containerMounts,
			files: map[string]string{"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n",
				"memory/memory.limit_in_bytes": noLimit + "\n"}},
		{name: "a quota without its period", groups: "2:cpu:/docker/c\n", mounts: containerMounts,
			files: map[string]string{"cpu/cpu.cfs_quota_us": "100000\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{}
			write := func(path, text string) {
				if text != "" {
					root[path] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			write("proc/self/cgroup", c.groups)
			write("proc/self/mountinfo", c.mounts)
			for path, text := range c.files {
				if path[0] == '/' {
					write(path[1:], text)
				} else {
					write("sys/fs/cgroup/"+path, text)
				}
			}
			g := Of(root)
			if g.CPUs() != c.cpus || g.Memory() != c.memory || g.Tasks() != c.tasks {
				t.Errorf("%v processors, %d bytes, %d tasks; want %v, %d, %d", g.CPUs(), g.Memory(), g.Tasks(), c.cpus,
					c.memory, c.tasks)
			}
		})
	}
}

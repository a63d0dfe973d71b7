package nodes

import (
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
)

func TestCount(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	limited := func(cpus string) fstest.MapFS {
		return fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/cpu.max": file(cpus),
			"proc/self/mountinfo": file("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")}
	}
	gpus := fstest.MapFS{"dev/nvidia0": file(""), "dev/nvidia3": file(""), "dev/nvidiactl": file("")}
	for _, c := range []struct {
		name, asked, visible string
		root                 fstest.MapFS
		want                 int
		err                  string
	}{
		{name: "number", asked: "3", want: 3},
		{name: "gpus", asked: "auto", root: gpus, want: 2},
		{name: "visible gpus", asked: "gpu", visible: "GPU-1,GPU-2,GPU-3", want: 3},
		{name: "no gpus", asked: "gpu", err: "PET_NPROC_PER_NODE gpu: this node has no GPU"},
		{name: "a hidden gpu", asked: "gpu", visible: "0,-1,1", root: gpus, want: 1},
		{name: "spaces", asked: "gpu", visible: " 1 , MIG-2", root: gpus, want: 2},
		{name: "a word ends the list", asked: "gpu", visible: "2,x,1", root: gpus, want: 1},
		{name: "-1", asked: "gpu", visible: "-1", root: gpus, err: "has no GPU"},
		{name: "none", asked: "gpu", visible: "none", root: gpus, err: "has no GPU"},
		{name: "NoDevFiles", asked: "gpu", visible: "NoDevFiles", root: gpus, err: "has no GPU"},
		{name: "void", asked: "auto", visible: "void", root: gpus, want: cpus(gpus)},
		{name: "a comma", asked: "gpu", visible: ",", root: gpus, err: "has no GPU"},
		{name: "twice the same", asked: "gpu", visible: "0,1,00", root: gpus, err: "has no GPU"},
		{name: "twice the same UUID", asked: "gpu", visible: "GPU-1,GPU-1", root: gpus, err: "has no GPU"},
		{name: "whole host", asked: "auto", root: limited("max 100000\n"), want: runtime.NumCPU()},
		{name: "a limit of one and a half", asked: "cpu", root: limited("150000 100000\n"), want: 1},
		{name: "less than one", asked: "cpu", root: limited("50000 100000\n"), want: 1},
		{name: "more than the host has", asked: "cpu", root: limited("99900000 100000\n"), want: runtime.NumCPU()},
		{name: "nonsense", asked: "many", err: `"many": a number from 1`},
		{name: "none", asked: "0", err: `PET_NPROC_PER_NODE "0": a number from 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Count("PET_NPROC_PER_NODE", c.asked, c.root, func(string) string { return c.visible })
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Fatalf("%d %v, want %d", got, err, c.want)
			}
		})
	}
}

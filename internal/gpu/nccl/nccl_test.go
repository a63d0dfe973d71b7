package nccl

import (
	"fmt"
	"slices"
	"testing"
)

func TestVersionText(t *testing.T) {
	for v, want := range map[int]string{2708: "2.7.8", 21805: "2.18.5", 22900: "2.29.0", 23203: "2.32.3"} {
		if got := VersionText(v); got != want {
			t.Errorf("%d is %s, not %s", v, got, want)
		}
		var major, minor, patch int
		fmt.Sscanf(want, "%d.%d.%d", &major, &minor, &patch)
		if got := versionCode(major, minor, patch); got != v {
			t.Errorf("%s is %d, not %d", want, got, v)
		}
	}
}

func TestCandidates(t *testing.T) {
	got := candidates([]string{"/usr/lib/libc.so.6", "/opt/a/lib/python3.11/site-packages/numpy/core.so",
		"/opt/a/lib/python3.11/site-packages/jaxlib/x.so", "/usr/lib/python3/dist-packages/y.so"})
	want := []string{"/opt/a/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",
		"/usr/lib/python3/dist-packages/nvidia/nccl/lib/libnccl.so.2", "libnccl.so.2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A program that is used again allocates nothing.
func TestProgramAllocatesNothing(t *testing.T) {
	var p Program
	use := func() {
		p.Reset(1)
		p.Wait(2)
		p.GroupStart()
		for range 64 {
			p.AllReduce(8, 8, 1, Float32, Sum)
		}
		p.GroupEnd()
		p.Record(3)
	}
	use()
	if n := testing.AllocsPerRun(10, use); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if len(p.Steps) != 68 {
		t.Errorf("%d steps", len(p.Steps))
	}
}

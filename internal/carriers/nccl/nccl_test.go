package nccl

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
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
	t.Setenv("LD_LIBRARY_PATH", "")
	got := candidates([]string{"/usr/lib/libc.so.6", "/opt/a/lib/python3.11/site-packages/numpy/core.so",
		"/opt/a/lib/python3.11/site-packages/jaxlib/x.so", "/usr/lib/python3/dist-packages/y.so"})
	want := []string{"/opt/a/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",
		"/usr/lib/python3/dist-packages/nvidia/nccl/lib/libnccl.so.2", "libnccl.so.2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// The loader's own folders count only if its path has no NCCL, since the loader takes what is in the path, fit or not.
func TestCandidatesOfThePath(t *testing.T) {
	with, without := t.TempDir(), t.TempDir()
	t.Setenv("LD_LIBRARY_PATH", without+"::"+with)
	if got := candidates(nil); !slices.Equal(got, []string{soname}) {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(filepath.Join(with, soname), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := candidates(nil); !slices.Equal(got, []string{filepath.Join(with, soname)}) {
		t.Errorf("%q", got)
	}

	packages := filepath.Join(t.TempDir(), "site-packages")
	wheel := filepath.Join(packages, "nvidia/nccl/lib")
	if err := os.MkdirAll(wheel, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(wheel, soname), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", wheel)
	if got := candidates([]string{packages + "/x.so"}); !slices.Equal(got, []string{filepath.Join(wheel, soname)}) {
		t.Errorf("the wheel's is in the path, too: %q", got)
	}

	other := make([]byte, 64) // the header of a library for 32-bit ARM
	copy(other, "\x7fELF\x01\x01\x01")
	binary.LittleEndian.PutUint16(other[16:], uint16(elf.ET_DYN))
	binary.LittleEndian.PutUint16(other[18:], uint16(elf.EM_ARM))
	binary.LittleEndian.PutUint32(other[20:], 1)
	if err := os.WriteFile(filepath.Join(with, soname), other, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", with)
	if got := candidates(nil); !slices.Equal(got, []string{soname}) {
		t.Errorf("one for another machine: %q", got)
	}
}

// A failure is that of the next step, or of earlier steps, which NCCL still issues in the background.
func TestFailedStep(t *testing.T) {
	var p Program
	p.AllReduce(8, 8, 1, Float32, Sum)
	p.Record(3)
	for _, c := range []struct {
		progress progress
		want     string
	}{{progress{}, "ncclAllReduce"}, {progress{next: 1}, "cuEventRecord"}, {progress{next: 1, late: 1},
		"an operation of NCCL"}, {progress{next: 2, late: 1}, "an operation of NCCL"}} {
		p.progress = c.progress
		if got := p.failed(); got != c.want {
			t.Errorf("%+v: %s, not %s", c.progress, got, c.want)
		}
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

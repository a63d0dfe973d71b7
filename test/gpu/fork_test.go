//go:build cgo && linux

package gpu

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestForkedChildren forks ranks during operations on a device. The children must not call CUDA or NCCL.
func TestForkedChildren(t *testing.T) {
	build, err := filepath.Abs(cmp.Or(os.Getenv("GOROVOD_TEST_BUILD"), "../../build"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(build, "libgorovod.so")); err != nil {
		t.Skip("libgorovod.so is not there: run make build first")
	}
	probePath(t) // builds the stand-in
	program := filepath.Join(probe.folder, "fork")
	if err := Compile(program, "-I../../include", "testdata/fork.c", "-L"+build, "-lgorovod", "-Wl,-rpath,"+build,
		filepath.Join(probe.folder, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	said := filepath.Join(folder, "report")
	command := exec.Command(filepath.Join(build, "horovodrun"), "-np", "2", program)
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+probe.folder, "STANDIN_MEETING="+folder,
		"STANDIN_REPORT="+said)
	out, err := command.CombinedOutput()
	report, _ := os.ReadFile(said) // there is no file if nothing was found
	if err != nil || len(report) > 0 || strings.Count(string(out), "forked 4 times") != 2 {
		t.Errorf("%v\n%s%s", err, out, report)
	}
}

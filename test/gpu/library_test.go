//go:build linux

package gpu

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// libraryCase is a job of testdata/library.c, or of another program there.
type libraryCase struct {
	name  string
	ranks int
	args  []string
	env   []string
	says  string // part of the output
	fails bool
}

// TestLibrary runs programs in C that submit tensors of devices to libgorovod. The results must be right, and the
// stand-in must report nothing.
func TestLibrary(t *testing.T) {
	async := []string{"HOROVOD_ENABLE_ASYNC_COMPLETION=1"}
	dynamic := append(async, "HOROVOD_DYNAMIC_PROCESS_SETS=1")
	brief := []string{"HOROVOD_GLOO_TIMEOUT_SECONDS=1"}
	short := append(dynamic, brief...)
	for _, c := range []libraryCase{
		{name: "nccl", ranks: 2, args: []string{"everything"}, env: []string{"GOROVOD_GPU=nccl"}},
		{name: "auto", ranks: 3, args: []string{"everything"}},
		{name: "async", ranks: 3, args: []string{"everything"}, env: async},
		{name: "one rank", ranks: 1, args: []string{"everything"}},
		{name: "staged", ranks: 2, args: []string{"staged"}, env: []string{"GOROVOD_GPU=staged"}},
		{name: "staged async", ranks: 2, args: []string{"staged"}, env: append(async, "GOROVOD_GPU=staged")},
		{name: "off", ranks: 2, args: []string{"refused", "GOROVOD_GPU=off refuses"}, env: []string{"GOROVOD_GPU=off"}},
		{name: "one device for all", ranks: 2, args: []string{"everything"}, env: []string{"LIBRARY_DEVICE=0"},
			says: "share the device GPU-"},
		{name: "one device for all, and nccl", ranks: 2, args: []string{"everything"},
			env: []string{"LIBRARY_DEVICE=0", "GOROVOD_GPU=nccl"}, says: "as GOROVOD_GPU=nccl asks for", fails: true},
		{name: "old nccl", ranks: 2, args: []string{"staged"}, env: []string{"STANDIN_NCCL_VERSION=21005"},
			says: "are copied through host memory: NCCL"},
		{name: "nccl hangs", ranks: 2, args: []string{"staged"},
			env:  append(brief, "STANDIN_FAULTS=ncclGetVersion:1:hang"),
			says: "libnccl.so.2 has not returned for 4s: look at nvidia-smi"},
		{name: "cuda hangs", ranks: 2, args: []string{"everything"},
			env:  append(brief, "STANDIN_FAULTS=cuEventQuery:3:hang"),
			says: "so this process cannot go on, and ends", fails: true},
		{name: "a submission hangs", ranks: 2, args: []string{"everything"},
			env:  append(brief, "STANDIN_FAULTS=cuEventRecord:1:hang"),
			says: "so this process cannot go on, and ends", fails: true},
		{name: "the end of a stream hangs", ranks: 2, args: []string{"everything"},
			env: append(brief, "STANDIN_FAULTS=cuStreamDestroy_v2:1:hang")},
		{name: "copies", ranks: 3, args: []string{"copies"}},
		{name: "mixed", ranks: 3, args: []string{"mixed"}},
		{name: "elsewhere", ranks: 2, args: []string{"elsewhere"}},
		{name: "joins", ranks: 3, args: []string{"joins"}},
		{name: "joins with one device", ranks: 3, args: []string{"joins"}, env: []string{"GOROVOD_GPU=staged"}},
		{name: "no memory", ranks: 2, args: []string{"no memory"}},
		{name: "holds on to memory", ranks: 2, args: []string{"holds on"}},
		{name: "dies before", ranks: 3, args: []string{"dies", "before"}, says: "survived after", fails: true},
		{name: "dies amid", ranks: 3, args: []string{"dies", "amid"}, says: "survived after", fails: true},
		{name: "hangs", ranks: 2, args: []string{"hangs"}, says: "rank 0 was let go", fails: true},
		{name: "opens no context", ranks: 2, args: []string{"opens"}, says: "rank 0 has left", fails: true},
		{name: "leaves", ranks: 2, args: []string{"leaves", "at once"}},
		{name: "leaves in order", ranks: 2, args: []string{"leaves", "shutdown"}},
		{name: "backlog at shutdown", ranks: 2, args: []string{"backlog", "shutdown"}, env: async},
		{name: "backlog of a set", ranks: 3, args: []string{"backlog", "remove"}, env: dynamic},
		{name: "backlog of a set, not waited for", ranks: 2, args: []string{"backlog", "remove early"}, env: dynamic},
		{name: "never done at shutdown", ranks: 2, args: []string{"never", "shutdown"}, env: short, fails: true,
			says: "are lost"},
		{name: "never done of a set", ranks: 2, args: []string{"never", "remove"}, env: short, fails: true,
			says: "are lost"},
		{name: "never done for a commit", ranks: 2, args: []string{"never", "settle"}, env: short, fails: true,
			says: "are lost"},
		{name: "settles", ranks: 2, args: []string{"settles"}, env: async, says: "rank 1 survived", fails: true},
		{name: "leaves async", ranks: 2, args: []string{"leaves", "at once"}, env: async},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, programPath(t, "library")) })
	}
}

func (c *libraryCase) run(t *testing.T, program string) {
	out, report, err := c.start(t, program)
	if report != "" || (err != nil) != c.fails || !strings.Contains(out, c.says) {
		t.Fatalf("%v\n%s%s", err, report, out)
	}
}

// start runs the job, and returns its output and the stand-in's report. It fails a job that does not end.
func (c *libraryCase) start(t *testing.T, program string) (output, report string, err error) {
	t.Helper()
	folder := t.TempDir()
	said := filepath.Join(folder, "report")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	args := append([]string{"-np", fmt.Sprint(c.ranks), program}, c.args...)
	command := exec.CommandContext(ctx, builtPath(t, "horovodrun"), args...)
	command.Env = append(os.Environ(), append(c.env, "LD_LIBRARY_PATH="+probe.folder, "STANDIN_MEETING="+folder,
		"STANDIN_REPORT="+said)...)
	out, err := command.CombinedOutput()
	text, _ := os.ReadFile(said) // there is no file if nothing was found
	if ctx.Err() != nil {
		t.Fatalf("the job does not end\n%s%s", text, out)
	}
	return string(out), string(text), err
}

// builtPath returns the path of a file that make build makes.
func builtPath(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(cmp.Or(os.Getenv("GOROVOD_TEST_BUILD"), "../../build"), name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there: run make build first", name)
	}
	return path
}

// programPath returns the path of the compiled testdata/NAME.c.
func programPath(t *testing.T, name string) string {
	t.Helper()
	probePath(t) // builds the stand-in
	program := filepath.Join(probe.folder, name)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	library := builtPath(t, "libgorovod.so")
	if err := Compile(program, "-I../../include", "testdata/"+name+".c", library,
		filepath.Join(probe.folder, "libcuda.so.1"), "-Wl,-rpath,"+filepath.Dir(library)); err != nil {
		t.Fatal(err)
	}
	return program
}

package cabi

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// within runs a program with a limit on its address space, and returns its output and its exit code.
func within(t *testing.T, mib int, program ...string) (string, int) {
	t.Helper()
	c := exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -v %d && exec "$0" "$@"`, mib<<10)},
		program...)...)
	out, err := c.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// If a limit on the address space leaves too little room for Go's runtime, the functions that a C program calls say so,
// and so do the commands. In 1,000 MiB the runtime would start, and write over the process's own memory.
func TestASmallAddressSpace(t *testing.T) {
	dir := filepath.Dir(built(t, "libgorovod.so"))
	program := filepath.Join(t.TempDir(), "room")
	cc := exec.Command("gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I../../include", "-o",
		program, "testdata/room.c", "-L"+dir, "-lgorovod", "-Wl,-rpath,"+dir)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, mib := range []int{60, 400, 740, 1000, 1300} {
		out, code := within(t, mib, program)
		if want := fmt.Sprintf("refused: gorovod's engine cannot start in this process: the limit on its address "+
			"space is %d MiB (ulimit -v), ", mib); code != 3 ||
			!strings.HasPrefix(out, want) || !strings.HasSuffix(out, "\nrank -1, initialized 0, handler 0\n") {
			t.Errorf("%d MiB: code %d, %s", mib, code, out)
		}
		for _, name := range []string{"gorovod", "horovodrun"} {
			out, code := within(t, mib, filepath.Join(dir, name), "--version")
			if code != 1 || !strings.HasPrefix(out, "gorovod: it cannot start: the limit on its address space "+
				"(ulimit -v) is below ") || strings.Count(out, "\n") != 1 {
				t.Errorf("%d MiB: code %d, %s", mib, code, out)
			}
		}
	}
	if out, code := within(t, 2000, program); code != 0 || out != "rank 0 of 1\n" {
		t.Errorf("2,000 MiB: code %d, %s", code, out)
	}
	if out, code := within(t, 1500, filepath.Join(dir, "horovodrun"), "-np", "2", "echo", "hi"); code != 0 ||
		strings.Count(out, ">:hi\n") != 2 {
		t.Errorf("1,500 MiB: code %d, %s", code, out)
	}
}

// If stdout is closed, commands that print say so, and jobs run as if it were /dev/null.
func TestNoStdout(t *testing.T) {
	for line, want := range map[string]string{
		"gorovod ps":               "1 gorovod ps: write /dev/stdout: file already closed\n",
		"gorovod --version":        "1 gorovod: write /dev/stdout: file already closed\n",
		"horovodrun --help":        "1 horovodrun: write /dev/stdout: file already closed\n",
		"horovodrun -np 2 echo hi": "0 ",
	} {
		words := strings.Fields(line)
		c := exec.Command("sh", append([]string{"-c", `exec "$0" "$@" >&-`, built(t, words[0])}, words[1:]...)...)
		out, err := c.CombinedOutput()
		if err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.ProcessState.ExitCode(), " ", string(out)); got != want {
			t.Errorf("%s >&-: %q, want %q", line, got, want)
		}
	}
}

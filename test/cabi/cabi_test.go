// Package cabi tests libgorovod.so by programs in C.
package cabi

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// built returns the absolute path of a file that make build makes, in build/
// or in the folder that GOROVOD_TEST_BUILD names.
func built(t *testing.T, name string) string {
	t.Helper()
	p, err := filepath.Abs(filepath.Join(cmp.Or(os.Getenv("GOROVOD_TEST_BUILD"), "../../build"), name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p); err != nil {
		t.Skipf("%s is not there: run make build first", name)
	}
	return p
}

func TestEverythingInC(t *testing.T) {
	lib := built(t, "libgorovod.so")
	run := built(t, "horovodrun")
	program := filepath.Join(t.TempDir(), "smoke")
	dir := filepath.Dir(lib)
	cc := exec.Command("gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread", "-I../../include",
		"-o", program, "testdata/smoke.c", "-L"+dir, "-lgorovod", "-Wl,-rpath,"+dir)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, transport := range []string{"auto", "tcp"} {
		for _, np := range []int{0, 1, 2, 4} { // 0: without horovodrun
			if testing.Short() && np != 2 {
				continue
			}
			t.Run(fmt.Sprintf("transport=%s/np=%d", transport, np), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				defer cancel()
				cmd := exec.CommandContext(ctx, program)
				if np > 0 {
					cmd = exec.CommandContext(ctx, run, "-np", fmt.Sprint(np), program)
				}
				cmd.Env = append(os.Environ(), "GOROVOD_TRANSPORT="+transport)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// The library exports only the names of its interface.
func TestExportedSymbols(t *testing.T) {
	out, err := exec.Command("nm", "-D", "--defined-only", built(t, "libgorovod.so")).Output()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		f := strings.Fields(line)
		names = append(names, f[len(f)-1])
	}
	for _, n := range names {
		if !strings.HasPrefix(n, "horovod_") && !strings.HasPrefix(n, "gorovod_") {
			t.Errorf("%s is exported", n)
		}
	}
	header, err := os.ReadFile("../../include/gorovod.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(header), "\n") {
		for _, w := range strings.FieldsFunc(line,
			func(r rune) bool { return !(r == '_' || r >= 'a' && r <= 'z' || r == '(') }) {
			if name, call := strings.CutSuffix(w, "("); call && (strings.HasPrefix(name, "horovod_") ||
				strings.HasPrefix(name, "gorovod_")) && !strings.Contains(line, " * ") &&
				!slices.Contains(names, name) {
				t.Errorf("%s is declared, but not exported", name)
			}
		}
	}
}

package cabi

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// compile builds a program of testdata against the library.
func compile(t *testing.T, name string) (program string) {
	t.Helper()
	dir := filepath.Dir(built(t, "libgorovod.so"))
	program = filepath.Join(t.TempDir(), name)
	cc := exec.Command("gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread", "-I../../include",
		"-o", program, filepath.Join("testdata", name+".c"), "-L"+dir, "-lgorovod", "-Wl,-rpath,"+dir)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// The errors that a C program gets for its mistakes are those of docs/contract.md.
func TestBadInputInC(t *testing.T) {
	run, program := built(t, "horovodrun"), compile(t, "badinput")
	contract, err := os.ReadFile("../../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, run, "-np", "3", program)
			cmd.Env = append(os.Environ(), "GOROVOD_TRANSPORT="+transport, "HOROVOD_FUSION_THRESHOLD=1024")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			told := make(map[string]bool)
			for line := range strings.Lines(string(out)) {
				_, answer, ok := strings.Cut(line, "BAD\t")
				if !ok {
					continue
				}
				status, reason, _ := strings.Cut(strings.TrimSuffix(answer, "\n"), "\t")
				told[fmt.Sprintf("| %s: `%s` |", status, reason)] = true
			}
			for cell := range told {
				if !strings.Contains(string(contract), cell) {
					t.Errorf("not in docs/contract.md: %s", cell)
				}
			}
			if want := 45; len(told) < want {
				t.Errorf("%d different answers, fewer than %d", len(told), want)
			}
		})
	}
}

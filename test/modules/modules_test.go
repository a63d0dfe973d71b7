// Package modules checks that programs get as few other modules as possible through gorovod.
package modules

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const own = "github.com/gorovod/gorovod"

// engines are the modules that the engine may import, each with its reason. Libraries for metrics, terminals, charts,
// command lines and clouds belong in cmd/gorovod.
var engines = map[string]string{
	own:                "itself",
	"golang.org/x/sys": "system calls that the standard library lacks",
}

// libraries are the further modules that the library for Python may import.
var libraries = map[string]string{
	"github.com/zeebo/xxh3":         "digests of tensors that ranks compare",
	"github.com/klauspost/cpuid/v2": "what xxh3 asks about the processor",
}

// programs are packages of this module that only programs import.
var programs = []string{"/internal/tools/chart", "/internal/base/commandline", "/internal/observe/frtrace",
	"/internal/tools/manifests", "/internal/observe/metrics", "/internal/observe/otlp", "/internal/observe/summary",
	"/internal/observe/top", "/internal/observe/tracemerge"}

// run runs the go command in dir.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = dir, &strings.Builder{}
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, cmd.Stderr)
	}
	return string(out)
}

func checkout(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTheEngineImportsLittle checks the modules that the Go package and the library for Python import.
func TestTheEngineImportsLittle(t *testing.T) {
	both := maps.Clone(engines)
	maps.Copy(both, libraries)
	for root, engines := range map[string]map[string]string{"./hvd": engines, "./cmd/libgorovod": both} {
		t.Run(filepath.Base(root), func(t *testing.T) {
			seen := map[string]bool{}
			for line := range strings.Lines(run(t, checkout(t), "list", "-deps", "-f",
				"{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", root)) {
				path, module, _ := strings.Cut(strings.TrimSpace(line), " ")
				if _, allowed := engines[module]; module != "" && !allowed {
					t.Errorf("%s needs %s of module %s, which is not one of %v (go mod why %s)",
						root, path, module, slices.Sorted(maps.Keys(engines)), path)
				}
				inside, _ := strings.CutPrefix(path, own)
				if slices.Contains(programs, inside) || strings.HasPrefix(inside, "/test/") {
					t.Errorf("%s needs %s, which is for programs only", root, path)
				}
				seen[module] = true
			}
			if !seen[own] || !seen["golang.org/x/sys"] {
				t.Errorf("go list names the modules %v only", slices.Sorted(maps.Keys(seen)))
			}
		})
	}
}

// TestUsersModuleStaysSmall makes a module that imports hvd, and tidies it. Its go.sum must have the modules that the
// engine imports, and none that only gorovod's own tests and programs need. (go mod tidy also looks at the tests of the
// packages that are imported.)
func TestUsersModuleStaysSmall(t *testing.T) {
	dir := t.TempDir()
	known, err := os.ReadFile("../../go.sum") // so that tidy need not ask for sums
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.sum": string(known),
		"go.mod": "module example.com/user\n\ngo 1.26.0\n\nrequire " + own + " v0.0.0\n\nreplace " + own + " => " +
			checkout(t) + "\n",
		"main.go": "package main\n\nimport \"" + own + "/hvd\"\n\nfunc main() { hvd.Init() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "mod", "tidy")
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{own: true}
	for line := range strings.Lines(string(sums)) {
		module, _, _ := strings.Cut(line, " ")
		if seen[module] = true; engines[module] == "" || module == own {
			t.Errorf("go.sum has %s", line)
		}
	}
	for module := range engines {
		if !seen[module] {
			t.Errorf("go.sum lacks %s: the test looks at too little:\n%s", module, sums)
		}
	}
}

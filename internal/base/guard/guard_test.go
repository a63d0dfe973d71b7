package guard

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestAPanicIsAnError(t *testing.T) {
	var group sync.WaitGroup
	var got error
	In(&group, "a test", func(err error) { got = err }, func() { panic("too much") })
	group.Wait()
	if got == nil || !strings.HasPrefix(got.Error(), "panic in a test: too much; in guard.TestAPanicIsAnError.func2 "+
		"(guard_test.go:") {
		t.Errorf("got %v", got)
	}
	got = nil
	In(&group, "a test", func(err error) { got = err }, func() {})
	group.Wait()
	if got != nil {
		t.Errorf("without a panic: %v", got)
	}
}

// All code inside a rank starts its goroutines through this package: a panic on any other goroutine would end the
// process, without a cause that the other ranks could show.
func TestEveryGoroutineIsGuarded(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", `{{if and .Module .Module.Main}}{{.Dir}}{{end}}`, "../../../hvd",
		"../../joining/process").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(string(out))
	if len(dirs) < 10 {
		t.Fatalf("only the packages %v", dirs)
	}
	for _, dir := range dirs {
		if filepath.Base(dir) == "guard" {
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if !strings.HasSuffix(name, "_test.go") {
				inspect(t, name)
			}
		}
	}
}

func inspect(t *testing.T, name string) {
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%v: a go statement; use guard.Go", set.Position(n.Pos()))
		case *ast.CallExpr:
			// WaitGroup.Go has one argument; guard.Go has three.
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if ok && sel.Sel.Name == "Go" && len(n.Args) == 1 {
				if x, ok := sel.X.(*ast.Ident); !ok || x.Name != "a" { // the user of link.Acceptor.Go guards it
					t.Errorf("%v: WaitGroup.Go; use guard.In", set.Position(n.Pos()))
				}
			}
		}
		return true
	})
}

package engine

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// blockingPackages are the packages below internal whose code runs in a driver.
var blockingPackages = []string{"engine", "driving", "negotiate", "collective", "transport", "transport/board",
	"transport/shm", "transport/tcp", "transport/hosts", "transport/treeboard", "backend/mpi", "gpu/carrier",
	"gpu/nccl", "gpu/cuda"}

// The table "What may block" of DESIGN.md names every function in which a thread may wait, and no other one.
func TestTheTableOfWhatMayBlock(t *testing.T) {
	text, err := os.ReadFile("../../DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "### What may block\n")
	table, _, _ = strings.Cut(table, "\n#")
	named := map[string]bool{}
	for _, row := range strings.Split(table, "\n") {
		for _, name := range regexp.MustCompile("`([a-z]+(\\.[A-Za-z]+)+)`").FindAllStringSubmatch(row, -1) {
			named[name[1]] = true
		}
	}
	found := map[string]string{}
	for _, dir := range blockingPackages {
		blockingIn(t, "../"+dir, found)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !named[name] {
			t.Errorf("%s: %s may block: name it in DESIGN.md's table \"What may block\", or do not let it block",
				found[name], name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if found[name] == "" {
			t.Errorf("DESIGN.md's table \"What may block\" names %s, which does not block, or is no more", name)
		}
	}
}

// blockingIn adds the functions of a folder in which a thread may wait, and the first place in each.
func blockingIn(t *testing.T, dir string, found map[string]string) {
	paths, err := filepath.Glob(dir + "/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal(dir, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			name := file.Name.Name + "."
			if f.Recv != nil {
				name += strings.TrimLeft(typeName(f.Recv.List[0].Type), "*") + "."
			}
			name += f.Name.Name
			inspectAll(f.Body, func(n ast.Node) {
				if blocks(n) && !orders(file, n) && found[name] == "" {
					found[name] = fmt.Sprintf("%s:%d", path, set.Position(n.Pos()).Line)
				}
			})
		}
	}
}

// inspectAll calls f for every node, except those in the cases of a select with a default: these do not block, but the
// statements that follow a case may.
func inspectAll(root ast.Node, f func(ast.Node)) {
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		f(n)
		s, ok := n.(*ast.SelectStmt)
		if !ok || !hasDefault(s) {
			return true
		}
		for _, c := range s.Body.List {
			for _, statement := range c.(*ast.CommClause).Body {
				inspectAll(statement, f)
			}
		}
		return false
	})
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	}
	return e.(*ast.Ident).Name
}

// blocks reports a statement or call at which a thread may wait for more than a lock. It does not know:
//
//   - what C does, nor reads and writes of connections
//   - a range over a channel, which looks like one over a slice
//   - a function literal in a variable of the package, as only declared functions are searched
func blocks(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SelectStmt:
		return !hasDefault(n)
	case *ast.SendStmt:
		return true
	case *ast.UnaryExpr:
		return n.Op == token.ARROW
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		switch f.Sel.Name {
		case "Sleep", "Wait", "Ppoll", "Syscall6":
			return true
		case "Poll", "EpollWait": // with a literal for the time, which is 0
			if len(n.Args) == 0 {
				return false
			}
			_, literal := n.Args[len(n.Args)-1].(*ast.BasicLit)
			return !literal
		}
	}
	return false
}

// orders reports a Wait of CUDA's, which makes a stream wait for an event, and returns at once.
func orders(file *ast.File, n ast.Node) bool {
	c, ok := n.(*ast.CallExpr)
	return ok && file.Name.Name == "carrier" && c.Fun.(*ast.SelectorExpr).Sel.Name == "Wait"
}

func hasDefault(s *ast.SelectStmt) bool {
	return slices.ContainsFunc(s.Body.List, func(c ast.Stmt) bool { return c.(*ast.CommClause).Comm == nil })
}

// A wait after a case of a select with a default is found, though the select itself does not wait.
func TestASelectWithADefaultHidesNoWait(t *testing.T) {
	const text = `package p
func f(a, b chan int) {
	select {
	case <-a:
		%s
	default:
		%s
	}
}`
	for _, c := range []struct {
		inCase, inDefault string
		want              int
	}{{"", "", 0}, {"<-b", "", 1}, {"", "b <- 1", 1}, {"select { case <-b: }", "select { default: <-b }", 3}} {
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", fmt.Sprintf(text, c.inCase, c.inDefault), 0)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		inspectAll(file, func(n ast.Node) {
			if blocks(n) {
				found++
			}
		})
		if found != c.want {
			t.Errorf("%q, %q: %d waits, want %d", c.inCase, c.inDefault, found, c.want)
		}
	}
}

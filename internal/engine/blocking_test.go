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

// blockingPackages are those whose code runs in a driver, below internal.
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
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if n != nil && blocks(n) && !orders(file, n) && found[name] == "" {
					found[name] = fmt.Sprintf("%s:%d", path, set.Position(n.Pos()).Line)
				}
				s, ok := n.(*ast.SelectStmt)
				return !ok || !hasDefault(s)
			})
		}
	}
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

// blocks reports a statement or call at which a thread may wait for more than a lock. It does not know what C does, nor
// reads and writes of connections.
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

// orders reports a Wait of CUDA's, which has a stream wait for an event, and returns at once.
func orders(file *ast.File, n ast.Node) bool {
	c, ok := n.(*ast.CallExpr)
	return ok && file.Name.Name == "carrier" && c.Fun.(*ast.SelectorExpr).Sel.Name == "Wait"
}

func hasDefault(s *ast.SelectStmt) bool {
	return slices.ContainsFunc(s.Body.List, func(c ast.Stmt) bool { return c.(*ast.CommClause).Comm == nil })
}

package engine

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// blockless says why no code of these packages below internal needs a place in the table, though a driver's packages
// import them.
var blockless = map[string]string{
	"base/failpoint":        "only tests enable it",
	"observe/flight":        "goroutines of its own answer questions; the driver only records",
	"base/reach":            "it runs before there is a connection",
	"observe/timeline":      "a goroutine of its own writes; the driver only leaves it events",
	"core/transport/inproc": "only tests use it",
	"core/transport/p2p":    "threads of the program send and receive",
	"core/transport/tcp/link": "the goroutines of connections use it, before these are lent and after they have come " +
		"back",
}

const internalPath = "github.com/gorovod/gorovod/internal/"

// blockingPackages are the packages below internal whose code may run in a driver: the engine, all transports and
// carriers, and what these import.
func blockingPackages(t *testing.T) []string {
	all := map[string]bool{}
	var add func(dir string)
	add = func(dir string) {
		if all[dir] || blockless[dir] != "" {
			return
		}
		all[dir] = true
		for _, file := range sourcesIn(t, "../../"+dir, parser.ImportsOnly) {
			for _, i := range file.Imports {
				if path, err := strconv.Unquote(i.Path.Value); err == nil && strings.HasPrefix(path, internalPath) {
					add(path[len(internalPath):])
				}
			}
		}
	}
	add("core/engine")
	for _, root := range []string{"core/transport", "carriers"} {
		err := filepath.WalkDir("../../"+root, func(path string, d fs.DirEntry, err error) error {
			if files, _ := filepath.Glob(path + "/*.go"); err == nil && d.IsDir() && len(files) > 0 {
				if d.Name() == "testdata" {
					return fs.SkipDir
				}
				add(strings.TrimPrefix(filepath.ToSlash(path), "../../"))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// The table "What may block" of DESIGN.md names every function in which a thread may wait, and no other one.
func TestTheTableOfWhatMayBlock(t *testing.T) {
	text, err := os.ReadFile("../../../DESIGN.md")
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
	for _, dir := range blockingPackages(t) {
		blockingIn(t, "../../"+dir, found)
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

// sourcesIn parses the source files of a folder, without its tests.
func sourcesIn(t *testing.T, dir string, mode parser.Mode) map[string]*ast.File {
	paths, err := filepath.Glob(dir + "/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal(dir, err)
	}
	files := map[string]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if files[path], err = parser.ParseFile(sources, path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

var sources = token.NewFileSet()

// blockingIn adds the functions of a folder in which a thread may wait, and the first place in each.
func blockingIn(t *testing.T, dir string, found map[string]string) {
	files := sourcesIn(t, dir, 0)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		file := files[path]
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
					found[name] = fmt.Sprintf("%s:%d", path, sources.Position(n.Pos()).Line)
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

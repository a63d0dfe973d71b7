// Package internal has no code of its own. Its test holds the order in which its packages stand.
package internal

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:generate go test -run TestTheDesignShowsTheFloors -rewrite

var rewrite = flag.Bool("rewrite", false, "rewrite the part of DESIGN.md that shows the floors")

const root = "github.com/gorovod/gorovod/internal/"

// wing is a folder of internal.
type wing struct {
	name  string
	about string
	below []string // the wings that its packages may import
	// rows are the packages, which may import those of the rows under theirs, but none of their own row. Names are
	// relative to the wing, and "." is the wing's folder itself.
	rows []string
}

// floors are all wings, from the roof to the ground.
var floors = []wing{
	{"launch", "starts the processes of a job, watches them, and ends them",
		[]string{"tools", "joining", "core", "observe", "elastic", "base"},
		[]string{".", "audience job mpirun", "flags", "discovery drive remote", "placement",
			"driver meeting notice output wire", "spawn", "ending nodes"}},
	{"tools", "commands that help people: they examine, measure, and write manifests",
		[]string{"core", "observe", "base"},
		[]string{"doctor", "bench doctor/cluster", "chart interpreter manifests notices notices/generate progress"}},
	{"joining", "how a process becomes a rank, and what it does when others fail or leave",
		[]string{"carriers", "core", "observe", "elastic", "base"},
		[]string{"process", "world", "bootstrap", "bootstrap/meet connect liveness observer",
			"bootstrap/pmix liveness/stall rendezvous roster"}},
	{"carriers", "other libraries that can carry the engine's data",
		[]string{"core", "observe", "base"},
		[]string{"gpu gpu/carrier", "nccl", "cuda mpi"}},
	{"core", "the engine: it agrees on operations, and carries them out",
		[]string{"observe", "base"},
		[]string{"transport/hosts", "transport/inproc transport/tcp", "engine transport/shm transport/treeboard",
			"autotune collective tablefile transport/board transport/p2p", "codec",
			"driving driving/record negotiate reduce table transport transport/tcp/link trial", "slots"}},
	{"observe", "what ranks note of their work, and what shows it to people and programs",
		[]string{"elastic", "base"},
		[]string{"dashboard summary top", "frtrace jobs metrics otlp overview",
			"door feed flight straggler timeline tracemerge vitals"}},
	{"elastic", "jobs whose ranks come and go: who takes part, and the worker's end",
		[]string{"base"},
		[]string{".", "checkpoint membership"}},
	{"base", "what all share, and nothing that knows of jobs",
		nil,
		[]string{"auth/certtest config",
			"auth commandline environment logging operation reach timeout",
			"cachesize cgroup failpoint guard jsonframe lazyregexp load peercred printable pulse regular shape" +
				" spelling tensor version wholefile"}},
}

// place is where a package stands: the wing, and the row in it.
type place struct{ wing, row int }

// places are all packages that the floors name, by their paths below internal.
func places() map[string]place {
	all := map[string]place{}
	for i, w := range floors {
		for j, row := range w.rows {
			for _, name := range strings.Fields(row) {
				all[filepath.ToSlash(filepath.Join(w.name, name))] = place{i, j}
			}
		}
	}
	return all
}

// source is a package's imports from internal, and its doc comment.
type source struct {
	imports []string
	about   string
}

// sources are all packages below internal, by path, as their files of all systems say, without their tests.
func sources(t *testing.T) map[string]*source {
	all := map[string]*source{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		return add(all, filepath.ToSlash(filepath.Dir(path)), file)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func add(all map[string]*source, path string, file *ast.File) error {
	if all[path] == nil {
		all[path] = &source{}
	}
	s := all[path]
	if s.about == "" && file.Doc != nil { // the first of several, as others speak of other systems
		s.about = new(doc.Package).Synopsis(file.Doc.Text())
	}
	for _, i := range file.Imports {
		name, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		if below, ok := strings.CutPrefix(name, root); ok && !slices.Contains(s.imports, below) {
			s.imports = append(s.imports, below)
		}
	}
	return nil
}

// forbids says why the first package may not import the second, or nothing.
func forbids(all map[string]place, from, to string) error {
	a, b := all[from], all[to]
	switch {
	case a.wing != b.wing && !slices.Contains(floors[a.wing].below, floors[b.wing].name):
		return fmt.Errorf("internal/%s imports internal/%s: no package of %s may import one of %s", from, to,
			floors[a.wing].name, floors[b.wing].name)
	case a.wing == b.wing && a.row >= b.row:
		return fmt.Errorf("internal/%s imports internal/%s, which does not stand below it in its wing", from, to)
	}
	return nil
}

// Every package imports only what the floors allow, and the floors name every package and no other.
func TestImportsGoDown(t *testing.T) {
	all, found, used := places(), sources(t), map[[2]string]bool{}
	for path, s := range found {
		if _, ok := all[path]; !ok {
			t.Errorf("internal/%s stands on no floor: name it in floors", path)
			continue
		}
		for _, below := range s.imports {
			if _, ok := all[below]; !ok {
				continue
			}
			if err := forbids(all, path, below); err != nil {
				t.Error(err)
			}
			used[[2]string{floors[all[path].wing].name, floors[all[below].wing].name}] = true
		}
	}
	for path := range all {
		if found[path] == nil {
			t.Errorf("floors has internal/%s, which does not exist", path)
		}
	}
	for i, w := range floors {
		for _, name := range w.below {
			if !slices.ContainsFunc(floors[i+1:], func(l wing) bool { return l.name == name }) {
				t.Errorf("floors lets %s import %s, which does not stand below it", w.name, name)
			}
			if !used[[2]string{w.name, name}] {
				t.Errorf("floors lets %s import %s, and no package of it does", w.name, name)
			}
		}
	}
}

// What the floors forbid is named.
func TestAForbiddenImportIsNamed(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"core/engine", "joining/world", "no package of core may import one of joining"},
		{"base/tensor", "core/engine", "no package of base may import one of core"},
		{"tools/doctor", "joining/world", "no package of tools may import one of joining"},
		{"core/negotiate", "core/engine", "does not stand below it in its wing"},
		{"base/auth", "base/reach", "does not stand below it in its wing"},
		{"core/engine", "core/negotiate", ""},
		{"launch", "base/auth", ""},
	} {
		err := forbids(places(), c.from, c.to)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s → %s: %v, want %q", c.from, c.to, err, c.want)
		}
	}
}

// DESIGN.md has the picture and the table that the floors and the packages' doc comments make.
func TestTheDesignShowsTheFloors(t *testing.T) {
	const file, begin, end = "../DESIGN.md", "<!-- floors: made by go generate ./internal -->\n", "<!-- /floors -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal(errors.New("DESIGN.md lacks the marks of the floors"))
	}
	want := before + begin + picture() + "\n" + table(t) + end + after
	if *rewrite {
		if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("DESIGN.md does not show the floors and the doc comments as they are; rewrite it with: " +
			"go generate ./internal")
	}
}

// picture draws the wings, one upon the other, with the packages of each in their rows.
func picture() string {
	const width = 100
	var b strings.Builder
	fmt.Fprintf(&b, "```\n cmd/gorovod   cmd/libgorovod   hvd\n")
	for _, w := range floors {
		head := "── " + w.name + " "
		b.WriteString(head + strings.Repeat("─", width-len([]rune(head))) + "\n")
		for _, row := range w.rows {
			line := "   "
			for _, name := range strings.Fields(row) {
				if name == "." {
					name = w.name
				}
				if len(line)+3+len(name) > width {
					b.WriteString(strings.TrimRight(line, " ") + "\n")
					line = "   "
				}
				line += name + "   "
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		if len(w.below) > 0 {
			b.WriteString("      ▼ " + strings.Join(w.below, ", ") + "\n")
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// table has a row for each package, with the first sentence of its doc comment.
func table(t *testing.T) string {
	found := sources(t)
	var b strings.Builder
	b.WriteString("| package | what it is |\n|---|---|\n")
	for _, w := range floors {
		fmt.Fprintf(&b, "| **`internal/%s`** | **%s** |\n", w.name, w.about)
		for _, row := range w.rows {
			for _, name := range strings.Fields(row) {
				path := filepath.ToSlash(filepath.Join(w.name, name))
				if found[path] == nil || found[path].about == "" {
					t.Fatalf("internal/%s has no doc comment", path)
				}
				about := found[path].about
				for _, prefix := range []string{"Package ", "Command "} {
					if rest, ok := strings.CutPrefix(about, prefix); ok {
						_, about, _ = strings.Cut(rest, " ")
					}
				}
				fmt.Fprintf(&b, "| `%s` | %s |\n", path, strings.TrimRight(about, ".:"))
			}
		}
	}
	return b.String()
}

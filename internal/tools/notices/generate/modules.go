package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is a module that is linked into a program; the standard library counts as one.
type module struct {
	Path     string
	Version  string // empty for the standard library, whose version is the toolchain's
	Licences []string
	Texts    []text
}

// text is a file with conditions, under its name in the module.
type text struct{ Name, Content string }

const (
	self     = "github.com/gorovod/gorovod"
	standard = "std"
)

// programs are the released programs; the machines are those that they are released for.
var (
	programs = []string{self + "/cmd/gorovod", self + "/cmd/libgorovod"}
	machines = []string{"amd64", "arm64"}
)

// elsewhere are files with the conditions of packages that their modules do not keep in LICENSE.
var elsewhere = map[string]string{
	"golang.org/x/image/font/gofont/goregular": "font/gofont/ttfs/README", // the font
}

// linked finds the modules by the go command, in the order of their paths.
func linked() ([]*module, error) {
	found := map[string]*module{}
	for _, machine := range machines {
		if err := collect(machine, found); err != nil {
			return nil, err
		}
	}
	var all []*module
	for _, path := range slices.Sorted(maps.Keys(found)) {
		m := found[path]
		slices.SortFunc(m.Texts, func(a, b text) int { return strings.Compare(a.Name, b.Name) })
		if err := m.judge(); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// collect adds the modules that are linked on one kind of machine.
func collect(machine string, found map[string]*module) error {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,Root,Standard,Module"},
		programs...)...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+machine, "CGO_ENABLED=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir, Root string
			Standard              bool
			Module                *struct{ Path, Version, Dir string }
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("go list: %w", err)
		}
		path, version, root, dir := standard, "", p.Root, p.Root // vendored packages have the same conditions
		switch {
		case p.ImportPath == "unsafe" || p.ImportPath == "C":
			continue
		case p.Module != nil && p.Module.Path == self:
			continue
		case p.Module != nil:
			path, version, root, dir = p.Module.Path, p.Module.Version, p.Module.Dir, p.Dir
		case !p.Standard:
			return fmt.Errorf("%s: it belongs to no module", p.ImportPath)
		}
		m := found[path]
		if m == nil {
			m = &module{Path: path, Version: version}
			found[path] = m
		}
		if err := m.read(root, dir, elsewhere[p.ImportPath]); err != nil {
			return err
		}
	}
}

// read adds the files with conditions in dir, and in the directories above it up to the module's root.
func (m *module) read(root, dir, besides string) error {
	var files []string
	for at := dir; ; at = filepath.Dir(at) {
		for _, kind := range []string{"LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "PATENTS*"} {
			in, _ := filepath.Glob(filepath.Join(at, kind)) // the pattern is valid
			files = append(files, in...)
		}
		if at == root || at == filepath.Dir(at) {
			break
		}
	}
	if besides != "" {
		files = append(files, filepath.Join(root, besides))
	}
	for _, file := range files {
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(m.Texts, func(t text) bool { return t.Name == name }) {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		m.Texts = append(m.Texts, text{name, strings.TrimSpace(string(content))})
	}
	return nil
}

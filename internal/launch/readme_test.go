package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The page for Go programmers works from an empty folder, and the README shows its program.
func TestGoExamplesOfTheDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs")
	}
	followGoExample(t, "docs/go.md", "# Go\n")
	pages := map[string]string{}
	for _, page := range []string{"README.md", "docs/go.md"} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\nfunc main() {\n")
		pages[page], _, _ = strings.Cut(rest, "\n```")
	}
	if pages["README.md"] == "" || pages["README.md"] != pages["docs/go.md"] {
		t.Errorf("main in README.md is\n%s\nand in docs/go.md\n%s", pages["README.md"], pages["docs/go.md"])
	}
}

// followGoExample builds and starts the program below a heading of a page, by the commands there.
func followGoExample(t *testing.T, page, heading string) {
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(repository + "/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), heading)
	section, _, _ = strings.Cut(section, "\n## ")
	block := func(language string) string {
		_, rest, ok := strings.Cut(section, "\n```"+language+"\n")
		code, _, closed := strings.Cut(rest, "\n```")
		if !ok || !closed {
			t.Fatalf("no %s block", language)
		}
		return code + "\n"
	}

	// At the repository's own path, compiled packages are found in the cache. The launcher is compiled here.
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/bin/horovodrun", "./cmd/gorovod")
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commands := strings.ReplaceAll(block("sh"), "../gorovod/build/horovodrun", dir+"/bin/horovodrun")
	commands = strings.ReplaceAll(commands, "../gorovod", repository)
	if err := os.WriteFile(dir+"/main.go", []byte(block("go")), 0o644); err != nil {
		t.Fatal(err)
	}
	sh := exec.Command("sh", "-e", "-c", commands)
	sh.Dir = dir
	// This repository's modules are on the machine already, so no network is needed.
	sh.Env = append(os.Environ(), "PWD="+dir, "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	var problems strings.Builder
	sh.Stderr = &problems
	out, err := sh.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &problems)
	}
	got := slices.Sorted(strings.Lines(string(out)))
	want := []string{"[0]<stdout>:0 [1.5 1] <nil>\n", "[1]<stdout>:1 [1.5 1] <nil>\n", "[2]<stdout>:2 [1.5 1] <nil>\n",
		"[3]<stdout>:3 [1.5 1] <nil>\n"}
	if !slices.Equal(got, want) {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

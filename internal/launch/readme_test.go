package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The pages' examples for Go programmers work from an empty folder.
func TestGoExamplesOfTheDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs")
	}
	for page, heading := range map[string]string{"README.md": "## In Go\n", "docs/go.md": "# Go\n"} {
		t.Run(page, func(t *testing.T) { followGoExample(t, page, heading) })
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

	// At the repository's own path, compiled packages are found in the cache.
	commands := strings.ReplaceAll(block("sh"), "../gorovod", repository)
	dir := t.TempDir()
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
	want := []string{"[0]<stdout>:0 [1.5 1]\n", "[1]<stdout>:1 [1.5 1]\n", "[2]<stdout>:2 [1.5 1]\n",
		"[3]<stdout>:3 [1.5 1]\n"}
	if !slices.Equal(got, want) {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

package version

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"testing"
)

var update = flag.Bool("update", false, "rewrite python/horovod/_version.py")

const pythonFile = "../../python/horovod/_version.py"

// Python's version is derived from this package's.
func TestPython(t *testing.T) {
	want := fmt.Sprintf(`"""The version. Generated from internal/version by go generate; do not edit."""

# The Horovod release whose interface this is, then gorovod's own version.
__version__ = "%s+gorovod.%s"
`, Horovod, Version)
	if *update {
		if err := os.WriteFile(pythonFile, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(pythonFile); err != nil || string(got) != want {
		t.Errorf("%v; rewrite it with: go generate ./internal/version\n%s", err, got)
	}
}

func TestTheChangelogHasASection(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(Version) + ` — \S`).Match(text) {
		t.Errorf("CHANGELOG.md has no section %q with a date", "## "+Version+" — ")
	}
}

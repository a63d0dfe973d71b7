package version

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite python/horovod/_version.py")

const pythonFile = "../../../python/horovod/_version.py"

// Python's version is derived from this package's.
func TestPython(t *testing.T) {
	want := fmt.Sprintf(`"""The version. Generated from internal/base/version by go generate; do not edit."""

# The Horovod release whose interface this is, then gorovod's own version.
__version__ = "%s+gorovod.%s"
`, Horovod, Version)
	if *update {
		if err := os.WriteFile(pythonFile, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(pythonFile); err != nil || string(got) != want {
		t.Errorf("%v; rewrite it with: go generate ./internal/base/version\n%s", err, got)
	}
}

// The changelog is for users: a section is short, and has the headings of keepachangelog.com.
func TestTheChangelogHasASection(t *testing.T) {
	text, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")
	if !strings.HasPrefix(sections[1], "["+Version+"] - ") && !strings.HasPrefix(sections[1], "[Unreleased]\n") {
		first, _, _ := strings.Cut(sections[1], "\n")
		t.Errorf("the first section of CHANGELOG.md is %q, not %q with a date", first, "["+Version+"] - ")
	}
	const most = 20
	for _, section := range sections[1:] {
		title, rest, _ := strings.Cut(section, "\n")
		lines := 0
		for line := range strings.Lines(rest) {
			if strings.TrimSpace(line) != "" {
				lines++
			}
			if heading, ok := strings.CutPrefix(line, "### "); ok && !slices.Contains([]string{"Added", "Changed",
				"Deprecated", "Removed", "Fixed", "Security"}, strings.TrimSpace(heading)) {
				t.Errorf("%s: the heading %q is not one of keepachangelog.com", title, strings.TrimSpace(heading))
			}
		}
		if lines > most {
			t.Errorf("%s: %d lines; at most %d: what changed on the way stays in git", title, lines, most)
		}
	}
}

package version

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// make release refuses a tree that would not be the release of its version, before it builds anything.
func TestAReleaseIsRefused(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("git", "-C", root, "rev-parse", "HEAD").Run(); err != nil {
		t.Skip("these sources are no clone of the repository (git clone)")
	}
	clone := filepath.Join(t.TempDir(), "clone")
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		if _, err := os.Stat(clone); err == nil {
			cmd.Dir = clone
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run("git", "clone", "-q", "--shared", root, clone)
	run("cp", filepath.Join(root, "scripts/release.sh"), "scripts/release.sh") // the working tree's
	run("git", "config", "user.name", "a test")
	run("git", "config", "user.email", "test@localhost")
	run("git", "commit", "-q", "--allow-empty", "-am", "as it is now")
	run("git", "config", "advice.detachedHead", "false")
	for _, c := range []struct {
		name     string
		do, undo string
		says     string
	}{
		{"a change", "echo >>README.md", "git checkout -q .", "the checkout has changes"},
		{"a new file", "echo >new", "rm new", "the checkout has changes"},
		{"the tag elsewhere", "git tag v" + Version + " HEAD~1", "git tag -d v" + Version, "the tag v" + Version +
			" is at "},
		{"another's tag here", "git tag v9.9.9", "git tag -d v9.9.9", "this commit is tagged v9.9.9"},
		{"no section", "sed -i 's/^## .*" + Version + "/## 9.9.9/' CHANGELOG.md && git commit -qam x",
			"git reset -q --hard HEAD~1", "CHANGELOG.md has no section '## [" + Version + "] - DATE'"},
		{"another version in Python", "sed -i 's/gorovod[.]" + Version +
			"/gorovod.9.9.9/' python/horovod/_version.py && git commit -qam x", "git reset -q --hard HEAD~1",
			"says another version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run("sh", "-c", c.do)
			defer run("sh", "-c", c.undo)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "scripts/release.sh", "python3")
			cmd.Dir = clone
			cmd.WaitDelay = time.Second // programs that it has started may hold its output open
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "release: ") || !strings.Contains(string(out), c.says) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

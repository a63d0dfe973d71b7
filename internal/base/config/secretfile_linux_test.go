package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSecretFiles reads files with a secret, and what is no such file. Nothing holds the reader up.
func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	secret := strings.Repeat("ab", 32)
	for name, text := range map[string]string{"good": " " + secret + "\n", "empty": "\n",
		"most": strings.Repeat("c", maxSecretFile), "long": strings.Repeat("d", maxSecretFile+1)} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("good", in("link")); err != nil { // as in a mounted Secret of Kubernetes
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(in("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, text, says string }{
		{in("good"), secret, ""},
		{in("link"), secret, ""},
		{in("empty"), "", ""},
		{in("most"), strings.Repeat("c", maxSecretFile), ""},
		{in("long"), "", in("long") + " has more than 4096 bytes"},
		{in("pipe"), "", in("pipe") + " is not a regular file"},
		{"/dev/zero", "", "/dev/zero is not a regular file"},
		{dir, "", dir + " is not a regular file"},
		{in("none"), "", in("none") + ": no such file"},
	} {
		text, err := ReadSecretFile(c.path)
		if text != c.text || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %.80q, %.200v", c.path, text, err)
		}
	}
	if _, err := ReadKey(in("pipe")); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("the job's secret: %v", err)
	}
}

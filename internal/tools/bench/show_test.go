package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The desktop's program gets the picture. Without a screen or that program the user hears why not.
func TestShow(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+"/bin:/usr/bin")
	t.Chdir(dir)
	viewer := func(script string) {
		if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	screen := func(name string) string { return map[string]string{"DISPLAY": ":0"}[name] }
	none := func(string) string { return "" }
	viewer("echo \"$@\" >seen\n")
	if err := show(t.Context(), "-x.svg", "linux", screen); err != nil {
		t.Fatal(err)
	}
	seen, err := os.ReadFile("seen")
	if want := filepath.Join(dir, "-x.svg") + "\n"; err != nil || string(seen) != want {
		t.Errorf("shown: %q, %v; want %q", seen, err, want)
	}
	for want, get := range map[string]func(string) string{"neither DISPLAY nor WAYLAND_DISPLAY": none,
		"exit status 3: no such program": screen} {
		viewer("echo no such program >&2; exit 3")
		if err := show(t.Context(), "x.svg", "linux", get); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	for _, system := range []string{"linux", "darwin"} {
		if err := show(t.Context(), "x.svg", system, screen); err == nil ||
			!strings.Contains(err.Error(), "open is not installed") {
			t.Error(err)
		}
	}
}

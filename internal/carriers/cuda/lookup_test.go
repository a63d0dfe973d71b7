package cuda

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLocated(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	file := filepath.Join(second, "libx.so.1")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", first+":"+second)
	for name, want := range map[string]string{
		"libx.so.1": "libx.so.1 (LD_LIBRARY_PATH has " + file + ")", "liby.so.1": "liby.so.1", file: file,
	} {
		if got := located(name); got != want {
			t.Errorf("%s is at %s", name, got)
		}
	}
}

func TestCallsAreNoted(t *testing.T) {
	var told []string
	Tell(func(call string) { told = append(told, call) })
	first, second := Begin("cuInit", "a"), Begin("dlopen", "b")
	Tell(nil)
	third := Begin("dlopen", "c")
	if !slices.Equal(told, []string{"cuInit of a", "dlopen of b"}) {
		t.Errorf("told %q", told)
	}
	for _, step := range []struct {
		end  func()
		left string
	}{{second, "cuInit of a"}, {first, "dlopen of c"}, {third, ""}} {
		step.end()
		if call, since := Underway(); call != step.left || (since > 0) != (call != "") {
			t.Errorf("under way: %q for %v, not %q", call, since, step.left)
		}
	}
}

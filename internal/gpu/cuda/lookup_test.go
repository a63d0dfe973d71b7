package cuda

import (
	"slices"
	"testing"
)

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

package config

import (
	"slices"
	"strings"
	"testing"
)

// A misspelt name gets the one that was meant. Names of other software that begin alike get no warning.
func TestMisspeltNames(t *testing.T) {
	for name, want := range map[string]struct {
		meant         string
		listed, warns bool
	}{
		"HOROVOD_FUSION_TRESHOLD":  {"HOROVOD_FUSION_THRESHOLD", true, true},
		"HOROVOD_CYCLETIME":        {"HOROVOD_CYCLE_TIME", true, true},
		"HOROVOD_RANKS":            {"HOROVOD_RANK", true, true},
		"HOROVOD_START_TIMOUT":     {"HOROVOD_START_TIMEOUT", true, true},
		"HOROVOD_TRANSPORT":        {"GOROVOD_TRANSPORT", true, true},
		"GOROVOD_FUSION_THRESHOLD": {"HOROVOD_FUSION_THRESHOLD", true, true},
		"GOROVOD_COMPRESION":       {"GOROVOD_COMPRESSION", true, true},
		"GOROVOD_X":                {"", true, true},
		"HOROVOD_VERSION_OF_OURS":  {"", true, false},
		"GOROVOD_TEST_PYTHON":      {"", false, false},
		"GOROVOD_SEED":             {"", false, false},
		"NCCL_X":                   {"", false, false},
		"PATH":                     {"", false, false},
	} {
		text := ""
		if want.listed {
			text = `"` + name + `" is no variable of gorovod or Horovod, and has no effect`
			if want.meant != "" {
				text += ": did you mean " + want.meant + "?"
			}
		}
		if got := strings.Join(Unknown([]string{name}), "; "); got != text {
			t.Errorf("%s is listed as %q, want %q", name, got, text)
		}
		if got := Misspelt([]string{name}); (len(got) > 0) != want.warns || want.warns && got[0] != text {
			t.Errorf("%s: warned with %q", name, got)
		}
	}
	if got := Misspelt([]string{"HOROVOD_RANKS", "GOROVOD_X"}); !slices.IsSorted(got) || len(got) != 2 {
		t.Errorf("two: %q", got)
	}
}

// No variable of Horovod is taken for a misspelt one, with or without an effect here.
func TestNoKnobIsMisspelt(t *testing.T) {
	var names []string
	for _, k := range Knobs {
		names = append(names, k.Name)
	}
	if got := Unknown(names); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

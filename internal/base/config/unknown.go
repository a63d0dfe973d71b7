package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/spelling"
)

// slip is how many letters of a variable's name may be wrong for it to count as misspelt. HOROVOD_ in place of GOROVOD_
// is one of them.
const slip = 2

// internals are variables without a line in the table: for tests (see package failpoint), for horovod.run, for another
// driver than horovodrun, and for the wheel.
var internals = []string{"GOROVOD_FAILPOINT", "GOROVOD_SEED", "GOROVOD_CUT", "GOROVOD_CHAOS_JOB", "GOROVOD_RESULT_FD",
	"GOROVOD_DRIVING_NOTES", "GOROVOD_WHEEL_BUILD"}

// Unknown finds the names that no knob has, but that begin as knobs do. It returns a sentence about each, sorted, with
// the name that was perhaps meant.
func Unknown(names []string) []string { return unknown(names, false) }

// Misspelt is Unknown without the names of other software, for warnings that nobody asked for: other software has
// variables that begin with HOROVOD_, too, so such a name counts only if it is almost a knob's.
func Misspelt(names []string) []string { return unknown(names, true) }

func unknown(names []string, mistakesOnly bool) (all []string) {
	var known []string
	for i := range Knobs {
		known = append(known, Knobs[i].Name)
	}
	for _, name := range names {
		ours, theirs := strings.HasPrefix(name, "GOROVOD_"), strings.HasPrefix(name, "HOROVOD_")
		if !ours && !theirs || slices.Contains(known, name) || slices.Contains(internals, name) ||
			strings.Contains(name, "_TEST_") {
			continue
		}
		text := fmt.Sprintf("%q is no variable of gorovod or Horovod, and has no effect", name)
		switch like := spelling.Nearest(name, known, slip); {
		case len(like) > 0:
			text += ": did you mean " + strings.Join(like, " or ") + "?"
		case mistakesOnly && theirs:
			continue
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

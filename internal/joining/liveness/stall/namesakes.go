package stall

import (
	"fmt"
	"strings"
)

// namesakes reports two operations of different kinds with one name. horovod.torch calls them allreduce.x and
// reduce.x, for example, as Horovod does: each kind has names of its own, so these two never meet, and no rank gets a
// mismatch error.
func namesakes(a, b *Waiting) string {
	given, ok := a.given()
	other, also := b.given()
	if !ok || !also || given != other || a.Op == b.Op || a.Set != b.Set {
		return ""
	}
	return fmt.Sprintf("Under the name %q some ranks call %s, and others %s: these never meet", given,
		strings.ToLower(a.Op), strings.ToLower(b.Op))
}

// given is the program's name of an operation, if it follows the operation's kind.
func (w *Waiting) given() (name string, ok bool) {
	kind, name, ok := strings.Cut(w.Name, ".")
	return name, ok && strings.HasSuffix(kind, strings.ToLower(w.Op)) && !strings.HasPrefix(name, "noname.")
}

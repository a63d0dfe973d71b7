package flight

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Merge says what the ranks of a job wait for, and which rank differs: a rank that has not submitted a tensor that
// others wait for, and its present operation; a rank with another type or shape. silent are processes of the job
// without a dump, because they do not answer, or answer with too much.
func Merge(w io.Writer, dumps []*Dump, silent []Silent) {
	slices.SortFunc(dumps, func(a, b *Dump) int { return a.Rank - b.Rank })
	for _, d := range dumps {
		at := ""
		if d.At != "" {
			at = "; it is in " + d.At
		}
		fmt.Fprintf(w, "%s: %s%s\n", d.Who(), d.state(), at)
		if d.Failure != "" {
			fmt.Fprintf(w, "  failed: %s\n", d.Failure)
		}
	}
	if len(dumps) == 0 {
		return
	}
	unknown := absent(dumps)
	var mute []int
	for _, s := range identify(silent, unknown) {
		i := slices.Index(unknown, s.Rank)
		if s.TooLong { // it may have submitted any tensor
			who := "a rank"
			if s.Rank >= 0 {
				who = fmt.Sprint("rank ", s.Rank)
			}
			fmt.Fprintf(w, "the answer of %s is left out (%s)\n", who, s.Why())
			continue
		}
		if i < 0 {
			fmt.Fprintf(w, "a rank does not answer (%s)\n", s.Why())
			continue
		}
		fmt.Fprintf(w, "rank %d has not come: it does not answer (%s)\n", s.Rank, s.Why())
		mute = append(mute, s.Rank)
		unknown = slices.Delete(unknown, i, i+1)
	}
	if len(unknown) > 0 {
		fmt.Fprintf(w, "nothing is known of %s\n", ranks(unknown))
	}
	for _, k := range pending(dumps) {
		k.tell(w, dumps, mute, unknown)
	}
}

// state says what a rank is doing.
func (d *Dump) state() string {
	var open []string
	for _, r := range d.Records {
		if r.Ended == 0 {
			open = append(open, fmt.Sprintf("%s %q (%s)", r.Op, r.Name, r.Phase()))
		}
	}
	switch {
	case len(open) > maxListed:
		return fmt.Sprintf("%s and %d more", strings.Join(open[:maxListed], ", "), len(open)-maxListed)
	case len(open) > 0:
		return strings.Join(open, ", ")
	case len(d.Records) == 0:
		return "has submitted nothing"
	}
	last := d.Records[len(d.Records)-1]
	return fmt.Sprintf("waits for nothing; its last operation was %s %q, which ended at %s", last.Op, last.Name,
		clock(last.Ended))
}

// maxListed is how many of a rank's operations a line names.
const maxListed = 4

// key names a tensor.
type key struct {
	set  int
	name string
}

// pending are the tensors that some rank waits for because not all ranks have submitted them, in the order in which
// they were first submitted.
func pending(dumps []*Dump) []key {
	first := map[key]int64{}
	for _, d := range dumps {
		for _, r := range d.Records {
			k := key{r.Set, r.Name}
			if at, seen := first[k]; r.Phase() == "waiting" && (!seen || r.Submitted < at) {
				first[k] = r.Submitted
			}
		}
	}
	keys := make([]key, 0, len(first))
	for k := range first {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return int(first[a] - first[b]) })
	return keys
}

// ranks is "rank 1" or "ranks 1, 2".
func ranks(list []int) string {
	var b strings.Builder
	for i, r := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, r)
	}
	if len(list) == 1 {
		return "rank " + b.String()
	}
	return "ranks " + b.String()
}

// tell says which ranks wait for a tensor, which do not, and how their types and shapes differ. mute are the ranks that
// do not answer; unknown are the ranks that may be on other hosts.
func (k key) tell(w io.Writer, dumps []*Dump, mute, unknown []int) {
	var waits, missing []int
	kinds := map[string][]int{}
	isMember := k.members(dumps)
	for _, d := range dumps {
		r := d.last(k)
		rank := d.Rank
		if r == nil || r.Phase() != "waiting" {
			if isMember(rank) || r != nil {
				missing = append(missing, rank)
			}
			continue
		}
		waits = append(waits, rank)
		kind := fmt.Sprintf("%s of %s %v", r.Op, r.DType, r.Shape)
		kinds[kind] = append(kinds[kind], rank)
	}
	verb := "wait"
	if len(waits) == 1 {
		verb = "waits"
	}
	fmt.Fprintf(w, "%q: %s %s", k.name, ranks(waits), verb)
	missing = append(missing, only(mute, isMember)...)
	slices.Sort(missing)
	if len(missing) > 0 {
		fmt.Fprintf(w, "; missing: %s", ranks(missing))
	}
	if unknown = only(unknown, isMember); len(unknown) > 0 {
		fmt.Fprintf(w, "; unknown: %s", ranks(unknown))
	}
	fmt.Fprintln(w)
	if len(kinds) > 1 {
		for _, kind := range sorted(kinds) {
			fmt.Fprintf(w, "  %s on %s\n", kind, ranks(kinds[kind]))
		}
	}
}

// members returns a function that reports whether a rank belongs to the tensor's process set. If no dump tells of the
// set, because it has been removed since, no rank is known to.
func (k key) members(dumps []*Dump) func(rank int) bool {
	if k.set == 0 {
		return func(int) bool { return true }
	}
	for _, d := range dumps {
		if ranks, known := d.Sets[k.set]; known {
			return func(rank int) bool { return slices.Contains(ranks, rank) }
		}
	}
	return func(int) bool { return false }
}

// only are those of a list that are members.
func only(list []int, isMember func(rank int) bool) (members []int) {
	for _, r := range list {
		if isMember(r) {
			members = append(members, r)
		}
	}
	return members
}

// last is a rank's last operation on a tensor.
func (d *Dump) last(k key) *Record {
	for i := range slices.Backward(d.Records) {
		if r := &d.Records[i]; r.Set == k.set && r.Name == k.name {
			return r
		}
	}
	return nil
}

// sorted are the kinds, the rarest, which is the odd one out, first.
func sorted(kinds map[string][]int) []string {
	var names []string
	for n := range kinds {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := len(kinds[a]) - len(kinds[b]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return names
}

// absent are the ranks without a dump.
func absent(dumps []*Dump) (missing []int) {
	have := map[int]bool{}
	size := 0
	for _, d := range dumps {
		have[d.Rank] = true
		size = max(size, d.Size)
	}
	for r := range min(size, 1<<16) {
		if !have[r] {
			missing = append(missing, r)
		}
	}
	return missing
}

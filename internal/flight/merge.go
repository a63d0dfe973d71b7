package flight

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Merge tells what the ranks of a job wait for, and who is the odd one out: who has not
// submitted what others wait for, and what he does instead; whose type or shape differs.
func Merge(w io.Writer, dumps []*Dump) {
	slices.SortFunc(dumps, func(a, b *Dump) int { return a.Rank - b.Rank })
	for _, d := range dumps {
		fmt.Fprintf(w, "%s: %s\n", d.Who(), d.state())
		if d.Failure != "" {
			fmt.Fprintf(w, "  failed: %s\n", d.Failure)
		}
	}
	if len(dumps) == 0 {
		return
	}
	if missing := absent(dumps); len(missing) > 0 {
		fmt.Fprintf(w, "nothing is known of ranks %s\n", strings.Trim(fmt.Sprint(missing), "[]"))
	}
	for _, k := range pending(dumps) {
		k.tell(w, dumps)
	}
}

// state is what a rank does now.
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
	return fmt.Sprintf("waits for nothing; its last operation was %s %q, which ended at %s", last.Op, last.Name, clock(last.Ended))
}

// maxListed is how many of a rank's operations are named.
const maxListed = 4

// key names a tensor.
type key struct {
	set  int
	name string
}

// pending are the tensors that some rank waits for because not all have submitted
// them, in the order in which they were first submitted.
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

// tell says who waits for a tensor and who does not, and how the ranks' ideas of it
// differ.
func (k key) tell(w io.Writer, dumps []*Dump) {
	var waits, missing []string
	kinds := map[string][]string{}
	for _, d := range dumps {
		r := d.last(k)
		rank := fmt.Sprint(d.Rank)
		if r == nil || r.Phase() != "waiting" {
			if k.set == 0 || r != nil { // of a process set it is not known who is in it
				missing = append(missing, rank)
			}
			continue
		}
		waits = append(waits, rank)
		kind := fmt.Sprintf("%s of %s %v", r.Op, r.DType, r.Shape)
		kinds[kind] = append(kinds[kind], rank)
	}
	fmt.Fprintf(w, "%q: ranks %s wait", k.name, strings.Join(waits, ", "))
	if len(missing) > 0 {
		fmt.Fprintf(w, "; missing: %s", strings.Join(missing, ", "))
	}
	fmt.Fprintln(w)
	if len(kinds) > 1 {
		for _, kind := range sorted(kinds) {
			fmt.Fprintf(w, "  %s on ranks %s\n", kind, strings.Join(kinds[kind], ", "))
		}
	}
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

// sorted are the kinds, the rarest first: the odd one out.
func sorted(kinds map[string][]string) []string {
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

// absent are the ranks of whom there is no dump.
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

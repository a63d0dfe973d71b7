package stall

import (
	"fmt"
	"slices"
	"time"
)

// A notice is the first word on an operation that waits: one line, long before the report. A rank that writes a
// checkpoint for so long is no fault, so it is information and no warning, one rank says it for all, and none says it
// again of a rank that is late at the same place.
type notices struct {
	asked map[key]time.Duration // the age at which this rank asked because of an operation
	told  map[string]bool       // what this rank has said: which ranks were late, and where they were
}

// mostNotices is how many different notices a rank gives at most.
const mostNotices = 20

// due reports whether an operation of this rank has become old enough for a notice since the last call.
func (n *notices) due(mine []Waiting, checkTime time.Duration) (due bool) {
	asked := make(map[key]time.Duration, len(n.asked))
	for _, w := range mine {
		if w.Since <= soon || w.Since > checkTime || w.joined() || w.Phase == Refused {
			continue
		}
		k := w.key()
		if before, known := n.asked[k]; !known || w.Since < before {
			due = true
		}
		asked[k] = w.Since
	}
	n.asked = asked
	return due
}

// isNew reports whether no notice about this has been given yet, and notes it.
func (n *notices) isNew(about string) bool {
	if n.told[about] || len(n.told) >= mostNotices {
		return false
	}
	if n.told == nil {
		n.told = make(map[string]bool)
	}
	n.told[about] = true
	return true
}

// notice is the line on the oldest of these operations that lacks ranks, and who is late and where; empty if there is
// none, or if another rank says it: the lowest of those that wait for long.
func (r *report) notice(early []stalled) (text, about string) {
	for i := range early {
		t := &early[i]
		missing := t.missing(r.trouble)
		if t.executing || len(missing) == 0 || r.trouble != nil {
			continue
		}
		for rank := range r.views[:r.Rank] {
			if slices.ContainsFunc(r.views[rank].Waiting, func(w Waiting) bool {
				return w.Since > soon/2 && w.Phase == Submitted && !w.joined()
			}) {
				return "", ""
			}
		}
		text = fmt.Sprintf("%s has waited for %s on %s: ", tensor(&t.Waiting), age(t.Since), ranks(t.waits))
		for n, l := range r.lacking([]*stalled{t}) {
			if n == maxInstead {
				return text + fmt.Sprintf("; %d more ranks have not submitted it, either", len(missing)-n), about
			}
			if l.rank < len(r.views) {
				about += fmt.Sprintln(l.rank, r.views[l.rank].At)
			}
			if n > 0 {
				text += "; "
			}
			text += fmt.Sprintf("%s has not submitted it, and %s", r.Describe(l.rank), r.explain(&l))
		}
		return text, about
	}
	return "", ""
}

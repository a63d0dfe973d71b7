package flight

import (
	"fmt"
	"strings"
	"time"
)

// patient is how long an operation may take before Now says for how long it has run.
const patient = time.Second

// Now says on one line what a job does, by the dumps of its ranks on this host, in the order of their ranks: why it
// failed; or which ranks are waited for, and how long; or what the ranks did last.
func Now(dumps []*Dump) string {
	if len(dumps) == 0 {
		return "unknown"
	}
	for _, d := range dumps {
		if d.Failure != "" {
			text, _, _ := strings.Cut(d.Failure, "\n")
			return "failed: " + text
		}
	}
	if keys := pending(dumps); len(keys) > 0 {
		if text := keys[0].now(dumps); text != "" {
			return text
		}
	}
	var last *Record
	var age time.Duration
	for _, d := range dumps {
		for i := range d.Records {
			if r := &d.Records[i]; last == nil || r.Submitted > last.Submitted {
				last, age = r, d.since(max(r.Submitted, r.Agreed, r.Started, r.Ended))
			}
		}
	}
	switch {
	case last == nil:
		return "has submitted nothing yet"
	case last.Ended == 0 && age >= patient:
		return fmt.Sprintf("in %s %q for %s", last.Op, last.Name, seconds(age))
	case age >= patient:
		return fmt.Sprintf("computes; its last operation, %s %q, was %s ago", last.Op, last.Name, seconds(age))
	}
	if text := straggler(dumps); text != "" {
		return fmt.Sprintf("%s; its last operation is %s %q", text, last.Op, last.Name)
	}
	return fmt.Sprintf("works; its last operation is %s %q", last.Op, last.Name)
}

// now says which ranks wait for which, if a wait has been long.
func (k key) now(dumps []*Dump) string {
	var waits, missing []int
	var longest time.Duration
	op := ""
	isMember := k.members(dumps)
	for _, d := range dumps {
		switch r := d.last(k); {
		case r != nil && r.Phase() == "waiting":
			waits, op = append(waits, d.Rank), r.Op
			longest = max(longest, d.since(r.Submitted))
		case isMember(d.Rank):
			missing = append(missing, d.Rank)
		}
	}
	if longest < patient {
		return ""
	}
	if len(missing) == 0 {
		missing = only(absent(dumps), isMember)
	}
	who := "other ranks, elsewhere or not answering"
	if len(missing) > 0 {
		who = some(missing)
	}
	verb := "wait"
	if len(waits) == 1 {
		verb = "waits"
	}
	text := fmt.Sprintf("%s %s for %s in %s %q, for %s", some(waits), verb, who, op, k.name, seconds(longest))
	for _, d := range dumps {
		if len(missing) > 0 && d.Rank == missing[0] && d.At != "" {
			text += fmt.Sprintf("; rank %d is in %s", d.Rank, d.At)
		}
	}
	return text
}

// some lists ranks, at most as many as fit on a line.
func some(list []int) string {
	if more := len(list) - maxListed; more > 1 {
		return fmt.Sprintf("%s and %d more", ranks(list[:maxListed]), more)
	}
	return ranks(list)
}

// since is how long before the dump a time was.
func (d *Dump) since(ns int64) time.Duration { return d.Time.Sub(time.Unix(0, ns)) }

// seconds writes a duration for people: 2.1 s, 3m20s.
func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

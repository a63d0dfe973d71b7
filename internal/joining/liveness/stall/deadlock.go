package stall

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Ranks are in a deadlock if the main thread of each has been blocked for a time (proof) by an operation that another
// of them has not submitted. A program can have more threads, so the rule also demands that no rank has submitted
// anything meanwhile. Where such a thread has ever submitted an operation, it may submit the missing one, too: then the
// proof takes the whole check time.
const (
	// answerSkew is the most time between answers to one question: a rank may have given the answer to another rank up
	// to a second before. If all ranks have been blocked for that much longer, they were blocked at one moment.
	answerSkew = time.Second
	// lookDelay is how much longer a rank waits before it looks, so that even old answers, whose durations are rounded
	// down, show that all are blocked.
	lookDelay = 2 * time.Second
)

// proof is how long ranks must have waited for one another for a deadlock. othersSubmit: threads other than a rank's
// main one submit operations.
func (o *Options) proof(othersSubmit bool) time.Duration {
	if othersSubmit {
		return o.CheckTime
	}
	return min(soon, o.CheckTime)
}

// held is a rank in a deadlock, and one of the operations that hold it.
type held struct {
	rank  int
	by    Waiting
	proof time.Duration // for which it has been held at least
	lacks []int         // the ranks in the deadlock that have not submitted it, ascending
}

// blocked is the time for which this rank's main thread has been blocked.
func blocked(mine []Waiting) time.Duration {
	var d time.Duration
	for i := range mine {
		d = max(d, mine[i].Blocked)
	}
	return d
}

// deadlock finds ranks that wait for one another, by world rank: the largest set of ranks in which each rank has been
// blocked for long enough (proof, and the time between answers) by an operation that another rank of the set has not
// submitted. views are by world rank.
func deadlock(views []view, members func(set int) []int, proof func(othersSubmit bool) time.Duration) []held {
	var all []held
	for r := range views {
		all = append(all, heldBack(r, views, members, proof)...)
	}
	in := make([]bool, len(views))
	// A rank that waits only for ranks that may continue may continue itself.
	for left := -1; left != len(all); {
		left = len(all)
		clear(in)
		for _, h := range all {
			in[h.rank] = true
		}
		all = slices.DeleteFunc(all, func(h held) bool {
			return !slices.ContainsFunc(h.lacks, func(r int) bool { return in[r] })
		})
	}
	for i := range all {
		all[i].lacks = slices.DeleteFunc(all[i].lacks, func(r int) bool { return !in[r] })
	}
	return all
}

// heldBack lists the operations that have blocked rank r for long enough. If a thread waits for two operations in turn,
// either may free it, so these do not count, unless the thread needs them.
func heldBack(r int, views []view, members func(set int) []int, proof func(othersSubmit bool) time.Duration) []held {
	v := &views[r]
	if v.silent || v.unreadable {
		return nil
	}
	inTurn := 0
	for i := range v.Waiting {
		if w := &v.Waiting[i]; w.Blocked > 0 && !w.Needed {
			inTurn++
		}
	}
	var all []held
	for _, w := range v.Waiting {
		h := held{rank: r, by: w, proof: proof(v.OthersSubmit)}
		if w.Blocked < h.proof+answerSkew || w.Phase != Submitted || inTurn > 1 && !w.Needed {
			continue
		}
		for _, m := range members(w.Set) {
			if m >= 0 && m < len(views) && views[m].lacks(&w) && w.Blocked >= proof(views[m].OthersSubmit)+answerSkew {
				h.lacks = append(h.lacks, m)
			}
		}
		if len(h.lacks) > 0 {
			all = append(all, h)
		}
	}
	return all
}

// lacks reports whether the rank has surely not submitted w.
func (v *view) lacks(w *Waiting) bool {
	if v.silent || v.unreadable || v.joined[w.Set] {
		return false
	}
	if w.joined() {
		return true
	}
	_, listed := v.phase(w.key())
	return !listed && v.unknown == 0
}

// circle is a part of a deadlock in which each waits for the next, and the last for the first.
func circle(all []held) []held {
	at := make(map[int]int, len(all))
	for i, h := range all {
		at[h.rank] = i
	}
	var path []held
	seen := map[int]int{} // a rank's index in path
	for next := all[0]; ; next = all[at[next.lacks[0]]] {
		if from, again := seen[next.rank]; again {
			return path[from:]
		}
		seen[next.rank] = len(path)
		path = append(path, next)
	}
}

// deadlocked describes the deadlock: which rank waits for which.
func (r *report) deadlocked() string {
	var b strings.Builder
	b.WriteString("deadlock")
	around := circle(r.dead)
	for n, h := range around {
		sep := "; "
		if n == 0 {
			sep = ": "
		}
		if n == maxTensors {
			b.WriteString(sep + "and so on")
			break
		}
		have := "have"
		if len(h.lacks) == 1 {
			have = "has"
		}
		if h.by.joined() {
			fmt.Fprintf(&b, "%s%s has joined, which %s %s not", sep, r.Describe(h.rank), ranks(h.lacks), have)
		} else {
			fmt.Fprintf(&b, "%s%s waits for %s, which %s %s not submitted", sep, r.Describe(h.rank), tensor(&h.by),
				ranks(h.lacks), have)
		}
	}
	for n, h := range around {
		if text := namesakes(&h.by, &around[(n+1)%len(around)].by); text != "" {
			b.WriteString(". " + text)
			break
		}
	}
	long := around[0].proof
	for _, h := range around {
		long = min(long, h.proof)
	}
	fmt.Fprintf(&b, ". For more than %s their main threads have waited so, and nothing was submitted on them "+
		"(GOROVOD_DEADLOCK_ABORT=0: such ranks are only reported)", seconds(long))
	return b.String()
}

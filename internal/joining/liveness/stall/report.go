package stall

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of a report. Beyond them a report only counts.
const (
	maxTensors = 6  // tensors that are described, and names in one list
	maxInstead = 3  // operations that a missing rank waits for
	maxMissing = 16 // ranks that are described
	maxPieces  = 16 // pieces of a list of ranks
)

// report is the result of one inspection.
type report struct {
	*Options
	views   []view    // by world rank
	tensors []stalled // the oldest first
	trouble error     // why not all ranks could be asked
	dead    []held    // ranks in a deadlock, ascending
	fatal   bool
}

// text is the whole report, in lines. Neither the first nor the last is empty.
func (r *report) text() string {
	var b strings.Builder
	missing, executing := r.split()
	if len(missing) > 0 {
		fmt.Fprintf(&b, "One or more tensors were submitted to be reduced, gathered or broadcast by only a subset of "+
			"the ranks, and have been waiting for the remaining ranks for more than %s. "+
			"Either different ranks submit different tensors, or only some of the ranks submit any: both end in a "+
			"deadlock.\n", seconds(r.CheckTime))
		lines(&b, missing, func(t *stalled) string { return r.waiting(t) })
		r.listMissing(&b, missing)
	}
	if len(executing) > 0 {
		fmt.Fprintf(&b, "One or more tensors that all ranks have submitted have been executing for more than %s: "+
			"they wait for data.\n", seconds(r.CheckTime))
		lines(&b, executing, func(t *stalled) string { return r.executing(t) })
	}
	if len(r.dead) > 0 {
		b.WriteString("A " + r.deadlocked() + ".\n")
	}
	if r.fatal {
		b.WriteString("Will shutdown.")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// cause is the error of a shutdown: a deadlock, or the first tensor that calls for it.
func (r *report) cause() error {
	if len(r.dead) > 0 {
		return errors.New(r.deadlocked())
	}
	for i := range r.tensors {
		t := &r.tensors[i]
		if !r.calls(t) {
			continue
		}
		if t.executing {
			return fmt.Errorf("stalled for longer than HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (%s): %s",
				seconds(r.ShutdownTime), r.executing(t))
		}
		text := fmt.Sprintf("stalled for longer than HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (%s): %s",
			seconds(r.ShutdownTime), r.waiting(t))
		lacks := r.lacking([]*stalled{t})
		for n, l := range lacks {
			if n == maxTensors {
				return fmt.Errorf("%s; and %d more ranks", text, len(lacks)-n)
			}
			text += "; " + r.Describe(l.rank) + " " + r.explain(&l)
		}
		return errors.New(text)
	}
	return errors.New("stalled") // never reached, because a fatal report has such a tensor
}

// calls reports whether t calls for the shutdown.
func (r *report) calls(t *stalled) bool {
	return r.ShutdownTime > 0 && t.Since > r.ShutdownTime && t.hopeless()
}

func (r *report) split() (missing, executing []*stalled) {
	for i := range r.tensors {
		if t := &r.tensors[i]; t.executing {
			executing = append(executing, t)
		} else {
			missing = append(missing, t)
		}
	}
	return missing, executing
}

// waiting returns the line of a tensor for which ranks are missing.
func (r *report) waiting(t *stalled) string {
	line := fmt.Sprintf("%s has waited for %s", tensor(&t.Waiting), age(t.Since))
	if len(t.waits) > 0 {
		line += " on " + ranks(t.waits)
	}
	if missing := t.missing(r.trouble); len(missing) > 0 {
		line += "; missing: " + ranks(missing)
	}
	if r.trouble != nil {
		line += fmt.Sprintf("; not all ranks could be asked: %v", r.trouble)
	}
	return line
}

// executing returns the line of a tensor for which no rank is missing.
func (r *report) executing(t *stalled) string {
	line := fmt.Sprintf("%s has been executing for %s", tensor(&t.Waiting), age(t.Since))
	if len(t.waits) > 0 {
		line += " on " + ranks(t.waits)
	}
	if len(t.done) > 0 {
		line += "; done on " + ranks(t.done)
	}
	switch {
	case r.trouble != nil:
		line += fmt.Sprintf("; not all ranks could be asked: %v", r.trouble)
	case len(t.silent) == 0:
		line += "; no rank is missing and all answer"
	default:
		for n, rank := range t.silent {
			if n == maxTensors {
				line += fmt.Sprintf("; and %d more ranks do not answer", len(t.silent)-n)
				break
			}
			line += "; " + r.Describe(rank) + " " + doesNotAnswer
		}
	}
	return line
}

const doesNotAnswer = "does not answer: its process is frozen or gone"

// missing lists the ranks that may not have submitted t, ascending. Without answers from all, ranks that have not
// answered are left out.
func (t *stalled) missing(trouble error) []int {
	all := slices.Concat(t.absent, t.unsure, t.unready)
	if trouble == nil {
		all = append(all, t.silent...)
	}
	slices.Sort(all)
	return all
}

// lack lists the operations that one rank has not submitted, as far as known.
type lack struct {
	rank    int
	names   []string // of all that it lacks, sorted
	unready []string // of the operations whose input is not ready
	unsure  bool     // whether it lacks one of them is unsure
	late    bool     // one of them calls for the shutdown
}

// lacking lists the missing ranks of the tensors, by rank.
func (r *report) lacking(tensors []*stalled) []lack {
	byRank := map[int]*lack{}
	for _, t := range tensors {
		for _, rank := range t.missing(r.trouble) {
			l := byRank[rank]
			if l == nil {
				l = &lack{rank: rank}
				byRank[rank] = l
			}
			l.names = append(l.names, t.Name)
			if slices.Contains(t.unready, rank) {
				l.unready = append(l.unready, t.Name)
			}
			l.unsure = l.unsure || slices.Contains(t.unsure, rank)
			l.late = l.late || r.calls(t)
		}
	}
	var all []lack
	for _, l := range byRank {
		slices.Sort(l.names)
		slices.Sort(l.unready)
		all = append(all, *l)
	}
	slices.SortFunc(all, func(a, b lack) int { return a.rank - b.rank })
	return all
}

// listMissing writes a line for each missing rank: its missing tensors, and what it does instead. A "!" marks ranks
// that call for the shutdown.
func (r *report) listMissing(b *strings.Builder, tensors []*stalled) {
	lacks := r.lacking(tensors)
	if len(lacks) == 0 {
		return
	}
	b.WriteString("Missing ranks:\n")
	for n, l := range lacks {
		if n == maxMissing {
			var rest []int
			for _, l := range lacks[n:] {
				rest = append(rest, l.rank)
			}
			fmt.Fprintf(b, " ... and %s\n", ranks(rest))
			return
		}
		bang := ""
		if l.late {
			bang = "!"
		}
		fmt.Fprintf(b, "%s%s: %s; it %s%s\n", r.Describe(l.rank), bang, names(l.names), r.explain(&l),
			r.namesake(&l, tensors))
	}
}

// explain says what a missing rank does instead.
func (r *report) explain(l *lack) string {
	v := &view{silent: true}
	if l.rank >= 0 && l.rank < len(r.views) {
		v = &r.views[l.rank]
	}
	switch {
	case v.silent:
		return doesNotAnswer
	case v.unreadable:
		return "answers what cannot be understood: it may wait for them too"
	}
	var list []string
	left := v.More
	for i := range v.Waiting {
		w := &v.Waiting[i]
		if w.Phase == Refused || w.Phase == Unready && slices.Contains(l.unready, w.Name) {
			continue // it does not wait for that one, or the text has that one already
		}
		if len(list) == maxInstead {
			left++
			continue
		}
		list = append(list, fmt.Sprintf("%s for %s%s", tensor(w), age(w.Since), [...]string{"", " (input not ready)",
			" (executing)"}[w.Phase]))
	}
	text := ""
	if len(l.unready) > 0 {
		text = "has submitted " + names(l.unready) + ", but the input is not ready"
		if len(list) == 0 {
			return text
		}
		text += "; "
	}
	if len(list) == 0 {
		return "waits for nothing: it is computing or stuck outside of Horovod" + v.place()
	}
	text += "waits instead for " + strings.Join(list, ", ")
	if left > 0 {
		text += fmt.Sprintf(" ... (%d more)", left)
	}
	text += v.place()
	if l.unsure {
		text += ", perhaps for this one too: they are too many for its answer"
	}
	return text
}

// namesake says that a missing rank uses the name of an operation that it lacks for another operation.
func (r *report) namesake(l *lack, tensors []*stalled) string {
	if l.rank < 0 || l.rank >= len(r.views) {
		return ""
	}
	for _, t := range tensors {
		if !slices.Contains(l.names, t.Name) {
			continue
		}
		for i := range r.views[l.rank].Waiting {
			if text := namesakes(&t.Waiting, &r.views[l.rank].Waiting[i]); text != "" {
				return ". " + text
			}
		}
	}
	return ""
}

// lines writes a line for each of the first tensors.
func lines(b *strings.Builder, tensors []*stalled, line func(*stalled) string) {
	for n, t := range tensors {
		if n == maxTensors {
			fmt.Fprintf(b, " ... (%d more)\n", len(tensors)-n)
			return
		}
		b.WriteString(line(t) + "\n")
	}
}

// names returns "[a, b]", with the first names.
func names(list []string) string {
	if len(list) > maxTensors {
		return "[" + strings.Join(list[:maxTensors], ", ") + " ...]"
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// tensor names an operation, such as "grad.1 (ALLREDUCE)".
func tensor(w *Waiting) string {
	if w.Set != 0 {
		return fmt.Sprintf("%s (%s, process set %d)", w.Name, w.Op, w.Set)
	}
	return fmt.Sprintf("%s (%s)", w.Name, w.Op)
}

// ranks returns "ranks 0, 1, 4-9", with runs of ranks shortened.
func ranks(list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("rank %d", list[0])
	}
	var pieces []string
	for i := 0; i < len(list); {
		if len(pieces) == maxPieces {
			pieces = append(pieces, fmt.Sprintf("... (%d more)", len(list)-i))
			break
		}
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j-i < 2 {
			j = i
		}
		piece := strconv.Itoa(list[i])
		if j > i {
			piece += "-" + strconv.Itoa(list[j])
		}
		pieces = append(pieces, piece)
		i = j + 1
	}
	return "ranks " + strings.Join(pieces, ", ")
}

// age formats a duration for messages.
func age(d time.Duration) string {
	if d < 10*time.Second {
		return seconds(d.Round(100 * time.Millisecond))
	}
	return seconds(d.Round(time.Second))
}

func seconds(d time.Duration) string {
	if d == time.Second {
		return "1 second"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " seconds"
}

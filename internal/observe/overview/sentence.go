package overview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"github.com/gorovod/gorovod/internal/observe/straggler"
)

const programVersion = version.Version

// Tone says how good the news is.
type Tone string

// The tones.
const (
	Fine  Tone = "fine"
	Slow  Tone = "slow"  // ranks lose time
	Stuck Tone = "stuck" // nothing goes on
)

const (
	// patient is the time that an operation may wait before the sentence names it.
	patient = time.Second
	// notable is the share of the time that ranks must wait for one another before the sentence says so.
	notable = 0.1
)

// sentence says what the job does, and who waits for whom. The caller holds mu.
func (j *Job) sentence(now time.Time, s *Snapshot, groups []*group) (string, Tone) {
	switch {
	case j.size == 0:
		return "The job has no ranks yet.", Fine
	case j.death != nil:
		return j.death.said(now), Stuck
	case s.Joined < j.size:
		return fmt.Sprintf("%d of %d ranks have joined, after %s.", s.Joined, j.size, seconds(now.Sub(j.formed))), Fine
	case s.Telling == 0:
		if last := j.lastTold(); !last.IsZero() {
			return fmt.Sprintf("No rank has answered for %s: their processes have ended or are stopped, or their "+
				"hosts are away.", seconds(now.Sub(last))), Slow
		}
		return "No rank has told what it does yet.", Fine
	}
	var stuck, join *group
	for _, g := range groups {
		switch age := g.last.Sub(g.start); {
		case age < patient || g.executing:
		case g.isJoin():
			join = g
		case stuck == nil || j.knowsMore(g, stuck):
			stuck = g
		}
	}
	if stuck != nil {
		return j.stuck(stuck, groups, now, s), Stuck
	}
	if v, ok := straggler.Find(j.windows); ok {
		v.Kind = j.shownKind(v)
		s.Straggler = &Straggler{v.Rank, v.Kind, v.Share}
		j.blames(v.Rank)
		return j.blame(v), Slow
	}
	for _, g := range groups {
		if age := g.last.Sub(g.start); age >= patient && g.executing {
			return fmt.Sprintf("All ranks are in %s (%s) for %s: its data is on the way.", quoted(g.name), g.op,
				seconds(age)), Slow
		}
	}
	if !slices.ContainsFunc(j.ranks, func(r rank) bool { return r.recent(window).seconds > 0 }) {
		if j.size == 1 {
			return "The only rank answers; how fast it is will be known in a second.", Fine
		}
		return fmt.Sprintf("All %d ranks answer; how fast they are is known in a second.", j.size), Fine
	}
	if join != nil {
		return j.joining(join, s)
	}
	if lost := straggler.Lost(j.windows); lost >= notable && s.Collectives > 0 {
		return fmt.Sprintf("Ranks wait for one another in %.0f %% of the time, for none of them most.", 100*lost), Slow
	}
	if ago := now.Sub(j.waited.end); ago < window*Every {
		return fmt.Sprintf("All %d ranks go on; until %s ago they waited for %s, for %s.", j.size, seconds(ago),
			j.waited.whom, seconds(j.waited.age)), Fine
	}
	if s.Collectives == 0 {
		return fmt.Sprintf("All %d ranks compute: no collective in the last seconds.", j.size), Fine
	}
	step := ""
	if s.Step > 0 {
		step = Duration(s.Step) + " a step, "
	}
	return fmt.Sprintf("All %d ranks keep pace: %s%s collectives a second, %s/s, and %.0f %% of the time waiting.",
		j.size, step, short(s.Collectives), Bytes(s.Bytes), 100*s.Waiting), Fine
}

// longWait is the last wait of which a sentence has told.
type longWait struct {
	in   string // the operation
	whom string // the ranks waited for
	age  time.Duration
	end  time.Time // when the sentence said it last
}

// notes notes a wait in g. Once the late rank has come, nobody is missing: then it is the rank of the same wait before.
func (w *longWait) notes(g *group, whom string, now time.Time) {
	next := longWait{g.label(), whom, g.last.Sub(g.start), now}
	if len(g.missing) == 0 && next.in == w.in && next.age >= w.age {
		next.whom = w.whom
	}
	*w = next
}

// joining says which ranks have no more data, and whether the others go on.
func (j *Job) joining(g *group, s *Snapshot) (string, Tone) {
	if s.Collectives == 0 && len(g.missing) > 0 {
		return j.stuckIn(g, g.last.Sub(g.start), 0), Slow
	}
	have, others := "has", "the others go on"
	if len(g.waiters) > 1 {
		have = "have"
	}
	if len(g.missing) == 1 {
		others = j.named(g.missing[0]) + " goes on"
	}
	return fmt.Sprintf("%s %s no more data (join) for %s; %s, with %s collectives a second.",
		capital(rankNumbers(g.waiters)), have, seconds(g.last.Sub(g.start)), others, short(s.Collectives)), Fine
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// awaited are the ranks that an operation lacks.
func (j *Job) awaited(g *group) string {
	switch len(g.missing) {
	case 0:
		return "other ranks"
	case 1:
		return j.named(g.missing[0])
	}
	return rankNumbers(g.missing)
}

// lastTold is when a rank has answered last; zero if none has since somebody began to look.
func (j *Job) lastTold() (last time.Time) {
	for i := range j.ranks {
		if told := j.ranks[i].told; told.After(last) && !told.Before(j.since) {
			last = told
		}
	}
	return last
}

// stuck says what the job is stuck in, with group g.
func (j *Job) stuck(g *group, groups []*group, now time.Time, s *Snapshot) string {
	age := g.last.Sub(g.start)
	late, held := j.lateIn(g)
	if len(late) == 0 && len(held) > 0 {
		j.blames(held...)
		j.waited.notes(g, "one another", now)
		return j.deadlock(g, held, groups, age)
	}
	only := *g
	only.missing = late
	if len(late) == 1 {
		s.Straggler = &Straggler{late[0], j.does(late[0]), 1}
	}
	j.blames(late...)
	j.waited.notes(&only, j.awaited(&only), now)
	text := j.stuckIn(&only, age, len(held))
	if len(held) > 0 {
		text += fmt.Sprintf(" %s, too, in %s.", waiting(held), operationOf(held, groups))
	}
	return text
}

// lateIn divides the ranks that an operation lacks: late ones, and held ones, which wait in other operations
// themselves. Only the late ones can go on.
func (j *Job) lateIn(g *group) (late, held []int) {
	for _, i := range g.missing {
		if j.isHeld(i, g) {
			held = append(held, i)
		} else {
			late = append(late, i)
		}
	}
	return late, held
}

// isHeld reports whether a rank that g lacks waits in another operation. A rank that only has submitted one, and sleeps
// or computes since, is not held.
func (j *Job) isHeld(i int, g *group) bool {
	if slices.Contains(g.silent, i) || slices.Contains(g.unready, i) ||
		!slices.ContainsFunc(j.ranks[i].last.Waits, func(w feed.Wait) bool { return w.Phase == feed.Waiting }) {
		return false
	}
	d := j.ranks[i].recent(stuckSamples)
	return !d.share.Looked || d.share.Mostly() == straggler.Locked
}

// knowsMore reports whether a says more than b of who is to blame.
func (j *Job) knowsMore(a, b *group) bool {
	if len(b.missing) == 0 || len(a.missing) == 0 {
		return len(a.missing) > 0 && len(b.missing) == 0
	}
	lateA, _ := j.lateIn(a)
	lateB, _ := j.lateIn(b)
	return len(lateA) > 0 && len(lateB) == 0
}

// deadlock says that ranks wait for one another: the waiters of g for held ones, which wait in other operations.
func (j *Job) deadlock(g *group, held []int, groups []*group, age time.Duration) string {
	one := rankNumbers(g.waiters) + " in " + g.label()
	other := rankNumbers(held) + " in " + operationOf(held, groups)
	if held[0] < g.waiters[0] { // the same order in each sentence
		one, other = other, one
	}
	return fmt.Sprintf("Ranks wait for one another, for %s: %s, %s.", seconds(age), one, other)
}

// operationOf is the operation in which all these ranks wait, if there is one.
func operationOf(ranks []int, groups []*group) string {
	for _, g := range groups[:min(len(groups), mostOpen)] {
		if !g.executing && !slices.ContainsFunc(ranks, func(i int) bool { return !slices.Contains(g.waiters, i) }) {
			return g.label()
		}
	}
	return "other operations"
}

// label is an operation for people.
func (g *group) label() string {
	if g.set != 0 {
		return fmt.Sprintf("%s (%s, process set %d)", quoted(g.name), g.op, g.set)
	}
	return fmt.Sprintf("%s (%s)", quoted(g.name), g.op)
}

// waiting is "Rank 3 waits" or "Ranks 0-2, 5 wait".
func waiting(ranks []int) string {
	if len(ranks) == 1 {
		return capital(rankNumbers(ranks)) + " waits"
	}
	return capital(rankNumbers(ranks)) + " wait"
}

// stuckIn says who waits for whom in an operation. others is the number of ranks that wait elsewhere.
func (j *Job) stuckIn(g *group, age time.Duration, others int) string {
	who := "All wait"
	if len(g.waiters)+len(g.missing)+others < j.size || len(g.missing) == 0 {
		who = waiting(g.waiters)
	}
	text := fmt.Sprintf("%s for %s, in %s, for %s", who, j.awaited(g), g.label(), seconds(age))
	if len(g.missing) == 1 {
		if why := j.why(g.missing[0], g); why != "" {
			text += ": " + why
		}
	}
	return text + "."
}

// blame says which rank slows the others down, and by what.
func (j *Job) blame(v straggler.Verdict) string {
	who := j.named(v.Rank)
	d := j.ranks[v.Rank].recent(straggler.Windows + 1)
	if v.Kind == straggler.SlowLink {
		return fmt.Sprintf("The connection from %s to %s is slow: it has data under way in %.0f %% of the time, at "+
			"%s/s.", who, j.ranks[v.Rank].last.Link.To, 100*d.share.Link, Bytes(d.share.Rate()))
	}
	text := fmt.Sprintf("The others wait for %s in %.0f %% of the time", who, 100*v.Share)
	if v.Kind != straggler.Unknown {
		text += ": " + doing(v.Kind, &d)
	}
	return text + "."
}

// shownKind is the kind of a verdict, as far as the rank's figures bear it out.
func (j *Job) shownKind(v straggler.Verdict) straggler.Kind {
	if v.Kind == straggler.SlowLink {
		return v.Kind
	}
	r := &j.ranks[v.Rank]
	d := r.recent(straggler.Windows + 1)
	switch {
	case d.seconds == 0 || r.last.CPU == 0:
		return straggler.Unknown
	case r.last.Main.Running == 0: // its system tells nothing of threads
		return j.does(v.Rank)
	}
	return borneOut(v.Kind, &d)
}

// borneOut is k, unless it says of a rank that has used no core that it computes.
func borneOut(k straggler.Kind, d *recent) straggler.Kind {
	if k == straggler.Computes && d.cores < leastCores {
		return straggler.Unknown
	}
	return k
}

// leastCores is the smallest number of cores that is not shown as 0.0.
const leastCores = 0.05

// why says what a late rank does instead, as far as its figures show; "" if they do not.
func (j *Job) why(i int, g *group) string {
	r := &j.ranks[i]
	if slices.Contains(g.silent, i) {
		return "it does not answer, so its process is stopped or its host is away"
	}
	if slices.Contains(g.unready, i) {
		return "it has submitted the tensor, but its input is not ready"
	}
	k := j.does(i)
	if k == straggler.Unknown {
		return ""
	}
	d := r.recent(stuckSamples)
	return doing(k, &d)
}

// stuckSamples is the number of samples that show what a rank does while the others are stuck. Older samples are of no
// interest, because the rank was not late then.
const stuckSamples = 3

// does says what a rank does while the others are stuck because of it.
func (j *Job) does(i int) straggler.Kind {
	r := &j.ranks[i]
	d := r.recent(stuckSamples)
	if d.seconds == 0 || r.last.CPU == 0 {
		return straggler.Unknown
	}
	if d.share.Known {
		return borneOut(d.share.Mostly(), &d)
	}
	if away := max(0.05, 1-d.waiting-d.busy); d.cores < 0.3*away { // what it did outside of collectives
		return straggler.Blocked
	}
	return straggler.Computes
}

// doing says what a rank does instead of being in time.
func doing(k straggler.Kind, d *recent) string {
	switch k {
	case straggler.Starves:
		return fmt.Sprintf("its main thread gets no core in %.0f %% of the time, since other processes use them",
			100*d.starved)
	case straggler.Sleeps:
		return fmt.Sprintf("it sleeps in %.0f %% of the time", 100*d.share.Asleep)
	case straggler.Reads:
		return fmt.Sprintf("it waits for data in %.0f %% of the time: for a file, a connection or another process",
			100*d.share.Reading)
	case straggler.Locked:
		return fmt.Sprintf("it waits for another thread of its own, or a lock, in %.0f %% of the time",
			100*d.share.Locked)
	case straggler.Blocked:
		return fmt.Sprintf("it sleeps, or waits for data or a lock (it uses %.2f cores)", d.cores)
	}
	return fmt.Sprintf("it computes (%.1f cores)", d.cores)
}

// named is a rank with its host.
func (j *Job) named(i int) string {
	if host := j.ranks[i].host; host != "" {
		return fmt.Sprintf("rank %d on %s", i, host)
	}
	return fmt.Sprintf("rank %d", i)
}

func quoted(name string) string { return "`" + name + "`" }

// rankNumbers is "rank 3" or "ranks 0-2, 5".
func rankNumbers(list []int) string {
	if len(list) == 1 {
		return "rank " + numbers(list)
	}
	return "ranks " + numbers(list)
}

// mostPieces bounds a list of ranks.
const mostPieces = 8

// numbers is "0-2, 5", of ranks in ascending order.
func numbers(list []int) string {
	var pieces []string
	for i := 0; i < len(list); {
		if len(pieces) == mostPieces {
			return strings.Join(pieces, ", ") + fmt.Sprintf(" and %d more", len(list)-i)
		}
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		piece := strconv.Itoa(list[i])
		if k > i {
			piece += "-" + strconv.Itoa(list[k])
		}
		pieces = append(pieces, piece)
		i = k + 1
	}
	return strings.Join(pieces, ", ")
}

// seconds is a time for people: 2.1 s, 3m20s.
func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", max(0, d.Seconds()))
	}
	return d.Round(time.Second).String()
}

// Duration is a short or long time for people: 250 ms, 2.1 s, 3m20s.
func Duration(s float64) string {
	switch {
	case s >= 1:
		return seconds(time.Duration(s * float64(time.Second)))
	case s >= 1e-3:
		return short(s*1e3) + " ms"
	}
	return short(s*1e6) + " µs"
}

// short is a number with three digits.
func short(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Bytes is a number of bytes for people, such as 1.25 GB.
func Bytes(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if v >= u.size {
			return short(v/u.size) + " " + u.name
		}
	}
	return fmt.Sprintf("%.0f B", v)
}

package overview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/straggler"
	"github.com/gorovod/gorovod/internal/version"
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
	case s.Joined < j.size:
		return fmt.Sprintf("%d of %d ranks have joined, after %s.", s.Joined, j.size, seconds(now.Sub(j.formed))), Fine
	case s.Telling == 0:
		return "No rank has told what it does yet.", Fine
	}
	var join *group
	for _, g := range groups {
		age := g.last.Sub(g.start)
		switch {
		case age < patient || g.executing:
		case g.isJoin():
			join = g
		default:
			if len(g.missing) == 1 {
				s.Straggler = &Straggler{g.missing[0], j.does(g.missing[0]), 1}
			}
			j.blames(g.missing...)
			j.waited = longWait{j.awaited(g), age, now}
			return j.stuckIn(g, age), Stuck
		}
	}
	if v, ok := straggler.Find(j.windows); ok {
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
	whom string // the ranks waited for
	age  time.Duration
	end  time.Time // when the sentence said it last
}

// joining says which ranks have no more data, and whether the others go on.
func (j *Job) joining(g *group, s *Snapshot) (string, Tone) {
	if s.Collectives == 0 && len(g.missing) > 0 {
		return j.stuckIn(g, g.last.Sub(g.start)), Slow
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

// stuckIn says who waits for whom in an operation.
func (j *Job) stuckIn(g *group, age time.Duration) string {
	who := "All wait"
	if len(g.waiters)+len(g.missing) < j.size || len(g.missing) == 0 {
		who = capital(rankNumbers(g.waiters)) + " wait"
		if len(g.waiters) == 1 {
			who += "s"
		}
	}
	text := who + " for " + j.awaited(g) + fmt.Sprintf(", in %s (%s", quoted(g.name), g.op)
	if g.set != 0 {
		text += fmt.Sprintf(", process set %d", g.set)
	}
	text += fmt.Sprintf("), for %s", seconds(age))
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
			"%s/s.", who, j.ranks[v.Rank].last.Link.To, 100*d.share.Link, Bytes(d.share.Rate))
	}
	text := fmt.Sprintf("The others wait for %s in %.0f %% of the time", who, 100*v.Share)
	if d.seconds > 0 && j.ranks[v.Rank].last.CPU > 0 {
		text += ": " + doing(v.Kind, &d)
	}
	return text + "."
}

// why says what a late rank does instead, as far as its figures show; "" if they do not.
func (j *Job) why(i int, g *group) string {
	r := &j.ranks[i]
	if slices.Contains(g.silent, i) {
		return "it does not answer, so its process is stopped or its host is away"
	}
	if slices.Contains(g.unready, i) {
		return "it has submitted the tensor, but its input is not ready"
	}
	d := r.recent(stuckSamples)
	if d.seconds == 0 || r.last.CPU == 0 {
		return ""
	}
	return doing(j.does(i), &d)
}

// stuckSamples is the number of samples that show what a rank does while the others are stuck. Older samples are of no
// interest, because the rank was not late then.
const stuckSamples = 3

// does says what a rank does while the others are stuck because of it.
func (j *Job) does(i int) straggler.Kind {
	d := j.ranks[i].recent(stuckSamples)
	if d.share.Known || d.seconds == 0 {
		return d.share.Mostly()
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

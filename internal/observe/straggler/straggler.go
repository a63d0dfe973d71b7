// Package straggler decides, from a few seconds of a job's figures, which rank slows the others down, and why. Package
// overview asks it once a second. Package summary asks it at the end, with the figures of all the time. It consists of
// pure functions: it has no state and reads no clock.
package straggler

import (
	"cmp"
	"slices"
)

// Kind says what a straggler does instead of being in time.
type Kind string

// The kinds.
const (
	Unknown  Kind = ""         // its figures do not show it, or not yet
	Computes Kind = "computes" // or does something that no figure shows
	Sleeps   Kind = "sleeps"   // waits for time to pass
	Reads    Kind = "reads"    // waits for a file, a pipe, a socket or another process, as for a data loader
	Locked   Kind = "locked"   // waits for another thread of its process
	Starves  Kind = "starves"  // gets no core
	SlowLink Kind = "link"     // its connection to another rank is slow
	Blocked  Kind = "blocked"  // waits; the kernel does not tell for what
)

// Share is what a rank did in a Window. Each field is a share of the time.
type Share struct {
	Late    float64 // the other ranks waited for it, on average over them
	Waiting float64 // it waited for others
	Busy    float64 // in collectives that all ranks had submitted

	// Of its main thread:
	Known                   bool
	Running, Starved        float64
	Looked                  bool // the next fields are known
	Asleep, Reading, Locked float64

	// Of its busiest connection:
	Link float64 // it had data under way
	Sent float64 // bytes that it has sent, per second of the window
}

// Rate is how many bytes per second the busiest connection of a rank sends while it has data under way; 0 if it has
// sent nothing.
func (s *Share) Rate() float64 { return s.Sent / max(s.Link, leastTold) }

// leastTold is the least share of the time in which a connection is known to have data under way: Linux measures that
// in ticks of up to 10 ms, a fast connection's often as 0.
const leastTold = 0.01

// Window is what each rank did in one second, by rank.
type Window []Share

// Verdict names a rank that slows the others down.
type Verdict struct {
	Rank int
	Kind Kind
	// Share is the share of the time that the others lose.
	Share float64
}

const (
	// Windows is how many windows a verdict needs. With one each second, a straggler is named within five seconds.
	Windows = 4
	// MostWindows is how many windows are examined if steps are longer than a second. steps is how many of them must
	// contain the end of a step.
	MostWindows = 12
	steps       = 3
	// Least is the smallest loss that is mentioned. For a smaller one, users have profilers.
	Least = 0.05
	// leastOfFew is the smallest loss if fewer than Windows windows contain the end of a step: by chance, the same rank
	// can be the last three times in a row.
	leastOfFew = 0.1
	// unrest is how much more a rank must be late if the ranks share cores with one another or with other programs, as
	// a fraction of the time in which the ranks get no core. Then chance alone can make one rank the last for seconds.
	unrest = 0.2
	// dominance is how many times longer the others must wait for the straggler than for all other ranks together.
	// Ranks that share cores are all late at times, and none is to blame.
	dominance = 2
	// steady is the fraction of its mean that a straggler must reach in all windows but one. One window may differ,
	// because steps do not end when seconds do. By chance the same rank is seldom the last in second after second.
	steady = 0.5
	// explained is the fraction of the loss that one cause must explain to be named.
	explained = 0.5

	// leastLink is the share of the time in which a slow connection has data under way. It is twice Least, because some
	// of that time is needed anyway. slower is how many times faster the other ranks' connections must be: more than
	// different loads of two hosts usually make of equal networks.
	leastLink = 0.1
	slower    = 2
)

// Find finds the rank that slows the others down in the last windows, of which the newest is last. ok is false if there
// is none.
func Find(windows []Window) (v Verdict, ok bool) {
	windows, telling := recent(windows)
	if windows == nil {
		return Verdict{}, false
	}
	mean := average(windows)
	late, isLate := latest(telling, mean)
	link, isSlow := slowest(telling, mean)
	if isSlow && (!isLate || link.Share >= late.Share) {
		return link, true
	}
	return late, isLate
}

// recent returns the last windows that suffice for a verdict (all), and those of them in which a step has ended
// (telling). With steps of less than a second, telling is all of them. It returns nil if there are too few, or if they
// are of different jobs.
func recent(windows []Window) (all, telling []Window) {
	for i := len(windows) - 1; i >= 0 && len(windows)-i <= MostWindows; i-- {
		w := windows[i]
		if len(w) < 2 || len(w) != len(windows[len(windows)-1]) {
			return nil, nil
		}
		if w.tells() {
			telling = append(telling, w)
		}
		if len(windows)-i >= Windows && len(telling) >= steps {
			return windows[i:], telling
		}
	}
	return nil, nil
}

// tells reports whether any rank was in a collective, or waited for one.
func (w Window) tells() bool {
	return slices.ContainsFunc(w, func(s Share) bool { return s.Late > 0 || s.Busy > 0 || s.Link > 0 })
}

// Lost is the average share of the time in which ranks waited for others in the last windows; 0 unless they waited
// repeatedly. If one wait is longer than all others, it counts as the second longest. A wait is charged to the window
// in which it ends, so it can fill the time before that window, too.
func Lost(windows []Window) float64 {
	windows, _ = recent(windows)
	lates := make([]float64, len(windows))
	for i, w := range windows {
		for k := range w {
			lates[i] += w[k].Late
		}
	}
	sorted := slices.Sorted(slices.Values(lates))
	if n := len(sorted); n < steps || sorted[n-steps] < Least {
		return 0
	}
	most, free, all := sorted[len(sorted)-2], 0.0, 0.0
	for _, late := range lates {
		free++
		late = min(late, most, free)
		free -= late
		all += late
	}
	return all / float64(len(windows))
}

// Latest is the rank for which the others wait most, by the fields Late and Starved. ok is false unless they lose at
// least the given share of the time by it, and this rank alone is to blame. The caller decides whether it is the last
// one often enough.
func (w Window) Latest(least float64) (rank int, ok bool) {
	rank = top(w, func(s *Share) float64 { return s.Late })
	others := 0.0
	starved := make([]float64, 0, len(w))
	for i := range w {
		if i != rank {
			others += w[i].Late
			starved = append(starved, w[i].Starved)
		}
	}
	late := w[rank].Late
	return rank, late >= least+unrest*median(starved) && late >= dominance*others
}

// latest finds the rank for which the others wait.
func latest(windows []Window, mean Window) (v Verdict, ok bool) {
	least := Least
	if len(windows) < Windows {
		least = leastOfFew
	}
	worst, ok := mean.Latest(least)
	m := &mean[worst]
	if !ok || !often(windows, func(w Window) bool {
		return w[worst].Late >= steady*m.Late && top(w, func(s *Share) float64 { return s.Late }) == worst
	}) {
		return Verdict{}, false
	}
	return Verdict{Rank: worst, Kind: cause(mean, worst), Share: min(1, m.Late)}, true
}

// cause is what the straggler does more than the other ranks, if that explains why it is late.
func cause(mean Window, rank int) Kind {
	m := &mean[rank]
	if !m.Known {
		return Unknown
	}
	causes := []struct {
		kind  Kind
		share func(s *Share) float64
		known bool
	}{
		{Starves, func(s *Share) float64 { return s.Starved }, true},
		{Sleeps, func(s *Share) float64 { return s.Asleep }, m.Looked},
		{Reads, func(s *Share) float64 { return s.Reading }, m.Looked},
		// A rank that waits in a collective waits for a thread of the engine.
		{Locked, func(s *Share) float64 { return max(0, s.Locked-s.Waiting-s.Busy) }, m.Looked},
		{Blocked, func(s *Share) float64 { return max(0, 1-s.Running-s.Starved-s.Waiting-s.Busy) }, true},
	}
	best, most := Computes, explained*m.Late
	for _, c := range causes {
		if c.known {
			if more := excess(mean, rank, c.share); more > most {
				best, most = c.kind, more
			}
			if c.kind == Locked && best != Computes {
				break // Blocked includes all waits: it is named only if no other kind is
			}
		}
	}
	return best
}

// scarce is the share of the time without a core that makes the lack of cores the cause, unless the rank waits for
// something else.
const scarce = 0.2

// Mostly is what a rank does while all others wait for it all the time.
func (s *Share) Mostly() Kind {
	switch {
	case s.Asleep > explained:
		return Sleeps
	case s.Reading > explained:
		return Reads
	case s.Locked > explained:
		return Locked
	case s.Starved > scarce:
		return Starves
	case s.Known && 1-s.Running-s.Starved > explained:
		return Blocked
	}
	return Computes
}

// slowest finds the rank with a slow connection: one that has data under way for longer than the others have, sends it
// at a lower rate, and is waited for. Those who get the data late are in the collective for as long as it is under way;
// the rank that sends it need not be.
func slowest(windows []Window, mean Window) (v Verdict, ok bool) {
	worst := top(mean, func(s *Share) float64 { return s.Link })
	m := &mean[worst]
	var rates, links []float64
	for i := range mean {
		if s := &mean[i]; i != worst && s.Sent > 0 {
			rates, links = append(rates, s.Rate()), append(links, s.Link)
		}
	}
	busy := mean[top(mean, func(s *Share) float64 { return s.Busy })].Busy
	if len(rates) == 0 || m.Link < leastLink || busy < m.Link/2 || m.Sent <= 0 || median(rates) < slower*m.Rate() {
		return Verdict{}, false
	}
	if !often(windows, func(w Window) bool {
		return w[worst].Link >= steady*m.Link && top(w, func(s *Share) float64 { return s.Link }) == worst
	}) {
		return Verdict{}, false
	}
	return Verdict{Rank: worst, Kind: SlowLink, Share: min(1, m.Link-median(links))}, true
}

// often reports whether something holds in all windows but one; in all windows, if they are few.
func often(windows []Window, holds func(Window) bool) bool {
	n := 0
	for _, w := range windows {
		if holds(w) {
			n++
		}
	}
	return n == len(windows) || n == len(windows)-1 && len(windows) >= Windows
}

// excess is how much more of something a rank does than the other ranks.
func excess(w Window, rank int, of func(*Share) float64) float64 {
	var others []float64
	for i := range w {
		if i != rank {
			others = append(others, of(&w[i]))
		}
	}
	return of(&w[rank]) - median(others)
}

// top is the rank with the most of something.
func top(w Window, of func(*Share) float64) (rank int) {
	for i := range w {
		if of(&w[i]) > of(&w[rank]) {
			rank = i
		}
	}
	return rank
}

// median is the middle value of a list, which it sorts; the mean of the two middle ones if the length is even.
func median(list []float64) float64 {
	slices.SortFunc(list, cmp.Compare[float64])
	n := len(list)
	if n == 0 {
		return 0
	}
	return (list[(n-1)/2] + list[n/2]) / 2
}

// average is the mean of the windows, by rank. A value that is unknown in any window is unknown.
func average(windows []Window) Window {
	mean := make(Window, len(windows[0]))
	for i := range mean {
		m := &mean[i]
		m.Known, m.Looked = true, true
		for _, w := range windows {
			s := &w[i]
			m.Known, m.Looked = m.Known && s.Known, m.Looked && s.Looked
			m.Late += s.Late
			m.Waiting += s.Waiting
			m.Busy += s.Busy
			m.Running += s.Running
			m.Starved += s.Starved
			m.Asleep += s.Asleep
			m.Reading += s.Reading
			m.Locked += s.Locked
			m.Link += s.Link
			m.Sent += s.Sent
		}
		for _, f := range []*float64{&m.Late, &m.Waiting, &m.Busy, &m.Running, &m.Starved, &m.Asleep, &m.Reading,
			&m.Locked, &m.Link, &m.Sent} {
			*f /= float64(len(windows))
		}
	}
	return mean
}

// Package membership decides who takes part in an elastic job: which workers start and end, when the job forms anew,
// and the order of its ranks. It is a pure state machine: events go in, each with its time, and actions come out.
// Package driver carries them out. There is no I/O here, no clock and no goroutine. Do not call the methods of a State
// concurrently.
//
// A worker is one process, on one slot of a host, for its whole life. An epoch is
// a world of workers with ranks. Its members train until the epoch ends:
//
//  1. A member is lost. The others leave the epoch.
//  2. Each reports as ready, with the number of the newest commit that it holds.
//  3. When all have reported, and they are at least Config.Min, a new epoch begins. It does not wait for starting
//     workers.
//  4. A new worker reports when it has started. Then the driver asks the members to come together again (Notify).
//
// The member with the newest commit becomes rank 0, and the others take its state. So a commit that any survivor holds
// is never undone.
package membership

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Config holds the rules of a job.
type Config struct {
	// NP is how many slots the job needs to start. Min is how many workers it needs to go on. Max is how many workers
	// it takes; 0: one for each slot.
	NP, Min, Max int
	// ResetLimit is how often the job may form anew; below 0: without limit.
	ResetLimit int
	// Timeout limits each wait: for slots, and for a member that answers pings but does not come.
	Timeout time.Duration
	// Patience is how long a member may leave pings unanswered while others wait for it.
	Patience time.Duration
	// WholeHosts: a failed worker costs its whole host and not just its slot, as in Horovod.
	WholeHosts bool
	// Cooldown is how long a failed slot or host stays out of use; the zero value: for ever.
	Cooldown Cooldown
	// Fixed: the hosts never change, so the job does not wait for other hosts.
	Fixed bool
	// Resumable: a new worker can take the state from a disk, once there is one (Saved).
	Resumable bool
	// Random is uniform in [0, 1), for cooldowns.
	Random func() float64
	// Terms are the user's names of Min, Timeout and Cooldown; the zero value: horovodrun's options.
	Terms Terms
}

// Terms are the names of settings in messages that advise the user to change them. Slots is the advice for a job that
// ends because it has too few.
type Terms struct{ Min, Timeout, Cooldown, Slots string }

// Cooldown is the range of --blacklist-cooldown-range.
type Cooldown struct{ Min, Max time.Duration }

// never is a time that never comes.
const never = time.Duration(1<<63 - 1)

// State is the state of the job. Times count from its start.
type State struct {
	c       Config
	now     time.Duration
	hosts   []*host // in the order in which they came, which is the order of the ranks
	named   map[string]*host
	workers []*worker // by their ids
	started int       // workers so far; their ids count from 0
	epoch   uint64    // the last epoch's number; 0: none yet
	resets  int
	source  *worker // rank 0 of the epoch; it may be gone
	newest  int64   // the commit that the epoch began with; below 0: no commit
	lost    bool    // the epoch has lost a member, so it cannot go on
	lacked  bool    // since the last epoch there were too few workers for the next one
	strikes int     // epochs in a row that could not be joined although nobody died
	// asked holds the kinds of news for which the members were asked to come together.
	asked HostUpdate

	startup time.Duration // the longest time that a worker has taken to come
	news    time.Duration // since when there is news for the members; never: there is no news
	gather  time.Duration // until when the news waits for starting workers; never: it does not wait
	size    int           // how many workers of the epoch stay
	costs   []*worker     // members whose failures have cost their slots since the last report
	trouble string        // why the last epoch could not be joined, for the next report

	waiting    time.Duration // since when slots are missing; never: none are
	holding    time.Duration // since when workers wait for others that do not come; never: none wait
	overdue    time.Duration // when the awaited workers must have come
	complained bool          // the user knows that slots are missing
	advised    bool          // the user knows that slots and hosts can have a cooldown
	replaced   bool          // workers that did not come were replaced
	failures   int
	saved      int64     // the last commit on a disk of which workers have told; below 0: none
	falls      int       // how often in a row all workers have failed although the state is on the disk
	deaths     int       // since the last of the falls, or since saved: of workers that had been in an epoch
	finisher   *worker   // the first member that ended with success, which finishes the job; nil: none
	unfinished []*worker // workers that still had to train then, and got no place
	stopped    bool
	actions    []Action
}

// New makes the State of a job without hosts.
func New(c Config) *State {
	c.Terms = Terms{cmp.Or(c.Terms.Min, "--min-np"), cmp.Or(c.Terms.Timeout, "--elastic-timeout"),
		cmp.Or(c.Terms.Cooldown, "--blacklist-cooldown-range"),
		cmp.Or(c.Terms.Slots, "check that hosts with enough slots are discovered")}
	return &State{c: c, named: map[string]*host{}, newest: -1, saved: -1, news: never, gather: never,
		waiting: never, holding: never, overdue: never}
}

// Epoch returns the number of the last epoch, 0 before the first.
func (s *State) Epoch() uint64 { return s.epoch }

// Hosts reports the hosts that exist, in order, with their slots. All other hosts have been taken away: their workers
// leave in order.
func (s *State) Hosts(now time.Duration, offered []Host) []Action {
	s.offer(offered)
	return s.proceed(now)
}

// Ready reports that a worker waits for a place.
func (s *State) Ready(now time.Duration, id int, r Registration) []Action {
	s.now = max(s.now, now)
	w := s.worker(id)
	if w == nil || w.phase == ending {
		s.act(Dismiss{Worker: id, Reason: "the job goes on without it"})
		return s.proceed(now)
	}
	if w.phase == starting {
		s.startup = max(s.startup, s.now-w.started)
	}
	w.phase, w.Registration = ready, r
	return s.proceed(now)
}

// Saved reports that a commit is on a disk: a worker has written it, or has found it there.
func (s *State) Saved(commit int64) {
	if commit != s.saved { // a smaller one: what is newer is damaged, and the job goes on from there
		s.saved, s.falls, s.deaths = commit, 0, 0
	}
}

// died counts a worker for the falls, if it was in an epoch.
func (s *State) died(w *worker) {
	if w.veteran {
		s.deaths++
	}
}

// Heard reports that a worker has answered a ping.
func (s *State) Heard(now time.Duration, id int) {
	if w := s.worker(id); w != nil {
		w.heard = now
	}
}

// Ended reports that a worker's process is gone, or could not start. failed is false if it exited with code 0.
func (s *State) Ended(now time.Duration, id int, failed bool) []Action {
	s.now = max(s.now, now)
	if w := s.worker(id); w != nil {
		s.remove(w, failed)
	}
	return s.proceed(now)
}

// HostLost reports that a host cannot be reached any more. Its workers count as dead; their ends need not be reported.
func (s *State) HostLost(now time.Duration, name string) []Action {
	s.now = max(s.now, now)
	if h := s.host(name); h != nil {
		for _, w := range s.on(h) {
			if s.epoch > 0 || s.c.Fixed {
				s.failures++ // otherwise no program has failed: a new host may not listen yet
			}
			s.died(w)
			s.lost = s.lost || w.member
		}
		s.workers = slices.DeleteFunc(s.workers, func(w *worker) bool { return w.host == h })
		s.blacklist(h, "it cannot be reached")
	}
	return s.proceed(now)
}

// Unreachable reports that a worker's connection is gone while its process may live.
func (s *State) Unreachable(now time.Duration, id int) []Action {
	s.now = max(s.now, now)
	if w := s.worker(id); w != nil && w.phase != ending {
		s.evict(w, "it has lost its connection to the launcher")
	}
	return s.proceed(now)
}

// Tick reports that time has passed. Call it at Next.
func (s *State) Tick(now time.Duration) []Action { return s.proceed(now) }

// proceed does everything that is possible or due.
func (s *State) proceed(now time.Duration) []Action {
	s.now = max(s.now, now)
	s.thaw()
	if !s.stopped {
		s.strand()
		s.dismissLeaving()
		switch {
		case s.finisher != nil:
			s.wind()
		case !s.abandoned():
			s.fill()
			s.form()
			s.notify()
			s.tellPauses()
		}
	}
	actions := s.actions
	s.actions = nil
	return actions
}

// remove removes a worker whose process has ended.
func (s *State) remove(w *worker, failed bool) {
	s.workers = slices.DeleteFunc(s.workers, func(o *worker) bool { return o == w })
	if w.phase == ending {
		return // it was given up before
	}
	if w.member {
		s.lost = true
		s.strikes = 0
	}
	switch {
	case failed:
		s.fail(w, w.member)
	case w.member || s.epoch == 0:
		if s.finisher == nil {
			s.finisher = w
		}
	default:
		s.fail(w, w.member) // it was to take part in the epoch, and did not
	}
}

// evict gives up a worker whose process still has to be ended.
func (s *State) evict(w *worker, why string) {
	member := w.member
	if member {
		s.lost = true
		s.strikes = 0
	}
	s.give(w, why)
	s.fail(w, member)
}

// give ends a worker's process. It no longer belongs to the job.
func (s *State) give(w *worker, why string) {
	w.phase, w.member = ending, false
	s.act(End{Worker: w.id, Reason: why})
}

// dismissLeaving dismisses workers that have lost their slots and are in no epoch. If only such workers hold the state,
// they wait, to hand it over to new workers.
func (s *State) dismissLeaving() {
	held := slices.ContainsFunc(s.workers,
		func(w *worker) bool { return w.veteran && w.phase != ending && !s.leaving(w) })
	for _, w := range slices.Clone(s.workers) {
		switch {
		case !s.leaving(w) || w.phase == ready && w.veteran && !held && s.finisher == nil:
		case w.phase == ready:
			w.phase, w.member = ending, false
			s.act(Dismiss{Worker: w.id, Reason: fmt.Sprintf("its slot on host %s has been taken away", w.host.name)})
		case w.phase == starting:
			s.give(w, "its slot has been taken away")
		}
	}
}

// strand dismisses the workers that a finished job leaves behind: members that come back because their operations
// failed; before the first epoch, also workers that wait for it.
func (s *State) strand() {
	if s.finisher == nil {
		return
	}
	for _, w := range s.in(ready) {
		if w.member || s.epoch == 0 {
			s.unfinished = append(s.unfinished, w)
			w.phase, w.member = ending, false
			s.act(Dismiss{Worker: w.id, Reason: s.finish()})
		}
	}
}

// wind ends a finished job: working members go on to their own ends, and waiting workers get no place.
func (s *State) wind() {
	for _, w := range slices.Clone(s.workers) {
		switch w.phase {
		case ready:
			w.phase, w.member = ending, false
			s.act(Dismiss{Worker: w.id, Reason: "the job has finished"})
		case starting:
			if s.epoch > 0 { // before the first epoch, the programs need no other workers
				s.give(w, "the job has finished")
			}
		}
	}
	switch {
	case len(s.workers) > 0:
	case len(s.unfinished) > 0:
		s.stopped = true
		s.act(Stop{Reason: s.early(), Unfinished: s.epoch > 0})
	default:
		s.stop("")
	}
}

// stop ends the job; an empty reason says that it has finished.
func (s *State) stop(reason string) {
	s.stopped = true
	s.act(Stop{Reason: reason})
}

func (s *State) act(a Action) { s.actions = append(s.actions, a) }

func (s *State) tell(format string, args ...any) { s.act(Tell{fmt.Sprintf(format, args...)}) }

package driving

import "time"

const (
	// askingFor: a program that has asked whether its operation has ended is expected to ask again within this time. It
	// waits in a loop of its own, which may sleep for some milliseconds.
	askingFor = 20 * time.Millisecond
	// spinningFor is how soon a program asks again if its loop does not sleep. Such a loop leaves the background
	// goroutine no core where ranks share cores, so the thread that asks drives.
	spinningFor = 200 * time.Microsecond
)

// Asks are when the program last asked for an operation that had not ended. Both times count from one arbitrary start;
// 0 is never.
type Asks struct {
	At   time.Duration // of the last question
	Spun time.Duration // of the last question in a loop that does not sleep
}

// Asked notes a question at now, after the last one before it.
//   - spins: the program's loop does not sleep, so its thread drives a step.
//   - hurry: the program begins to ask, so the background goroutine ends its nap.
func (j Job) Asked(last, now time.Duration) (spins, hurry bool) {
	never := last == 0
	return !never && now-last <= spinningFor, j.crowded() && (never || now-last > askingFor)
}

// Mood is how the background goroutine goes about its work.
type Mood struct {
	// Lazy: a look can wait. No core is to spare, no message can come from another host, no pending operation has a
	// callback, and the program does not keep asking.
	Lazy bool
	// Spinning: the program asks in a loop that does not sleep, and drives.
	Spinning bool
}

// Mood follows from the number of pending operations with a callback, and from the questions.
func (j Job) Mood(callbacks int, a Asks, now time.Duration) Mood {
	just := func(at time.Duration) bool { return at != 0 && now-at <= askingFor }
	return Mood{Lazy: j.crowded() && callbacks == 0 && !just(a.At), Spinning: just(a.Spun)}
}

// naps are the first nap, the longest, and the one during a collective.
func (m Mood) naps() (first, most, midway time.Duration) {
	switch {
	case m.Lazy:
		return lazyGather, lazyNap, lazyMidway
	case m.Spinning:
		return spinningNap, spinningNap, spinningNap
	}
	return gatherNap, longNap, gatherNap
}

// Hurried returns how long the background goroutine naps on when its nap of d is interrupted.
func Hurried(d time.Duration, m Mood) time.Duration {
	if first, _, _ := m.naps(); first < d {
		return first
	}
	return 0
}

package driving

import "time"

// Times of the background goroutine. It drives while nobody waits, so it need not hurry: it lets submissions gather
// before it looks. When it finds nothing, it naps for longer and longer, because polling would take a core from the
// program.
const (
	// gatherNap is the nap before the first look, and during a collective. A program submits several tensors in it. It
	// delays an operation that nobody waits for, and shorter naps take the core from the program more often.
	gatherNap = 100 * time.Microsecond
	// longNap is the longest nap: after one nap without progress all are this long. It bounds how late the background
	// goroutine is while it naps.
	longNap = 200 * time.Microsecond
	// dozeAfter is how long it naps without any progress before it sleeps on the bell: some ten naps. A nap costs the
	// program a look, while a sleep costs the peer a ring and this rank a wake-up, which only a longer wait is worth.
	// No measurement is kept that tells these three times from half or twice as much.
	dozeAfter = 2 * time.Millisecond

	// Lazy naps: each look takes a core from a program that computes until it comes for its results. Training on twice
	// as many ranks as cores switched 210 times a step and rank with naps of 2 to 4 ms, and 170 times with these, in
	// some 3 % less time.
	lazyGather = 10 * time.Millisecond
	lazyNap    = 40 * time.Millisecond
	// Amid a collective the other ranks may be computing, too. A large one has many steps, so this nap is short.
	lazyMidway = 2 * time.Millisecond

	// spinningNap is how long it leaves the work to a program that asks in a loop: ten times spinningFor, in which
	// a loop that does not sleep asks again. With this nap, and a step for each question, operations of four
	// such ranks on two cores took 0.1 ms, and 13 to 27 ms before. Other lengths have not been compared.
	spinningNap = 2 * time.Millisecond
)

// Background is the background goroutine from a kick until it waits for the next kick.
type Background struct {
	job   Job
	cores *Contention
	nap   time.Duration // the latest nap
	idle  time.Duration // the sum of naps in a row without any progress
	polls int           // looks without progress in a row, since it has the seat
	moved bool          // it has made progress or slept since it has the seat
	doze  bool          // it may sleep on the bell
}

// Kicked begins the background goroutine's work. It naps for the returned time, and then tries to take the seat.
func (j Job) Kicked(m Mood, c *Contention) (Background, time.Duration) {
	first, _, _ := m.naps()
	return Background{job: j, cores: c, nap: first}, first
}

// Seated is called when the background goroutine has taken the seat.
func (b *Background) Seated(m Mood) {
	b.doze = b.idle >= dozeAfter && !m.Spinning
	b.moved, b.polls = false, 0
}

// Dozes reports whether the background goroutine may sleep on the bell now that it has the seat.
func (b *Background) Dozes() bool { return b.doze }

// Moved reports whether the background goroutine has made progress or slept since it took the seat.
func (b *Background) Moved() bool { return b.moved }

// Worked notes a look that has made progress.
func (b *Background) Worked() {
	b.moved, b.polls = true, 0
	b.cores.found()
}

// Nothing notes a look without progress, and says how to go on. midway: a collective has begun and not ended. polled is
// Facts.Polled.
func (b *Background) Nothing(midway, polled bool, m Mood) Action {
	if !midway {
		if b.doze && !b.moved {
			return Rest
		}
		return HandOver
	}
	b.polls++
	if a := b.spin(polled, m); a != Rest {
		return a
	}
	if m.Lazy && !b.doze || m.Spinning {
		return HandOver
	}
	return Rest
}

// spin is Job.spin, except where the background goroutine is lazy. There polling takes a core from a program, here or
// on another rank, and the collective may wait for that program.
func (b *Background) spin(polled bool, m Mood) Action {
	switch {
	case !m.Lazy || polled:
		return b.job.spin(b.polls, polled, b.cores)
	case b.polls < politePolls:
		return Poll
	}
	return Rest
}

// Woke notes the end of a rest.
func (b *Background) Woke() {
	b.moved, b.polls = true, 0
	b.cores.slept()
}

// Left is called when the background goroutine leaves the seat with operations pending. It naps for the returned time,
// and then tries to take the seat again.
func (b *Background) Left(midway bool, m Mood) time.Duration {
	first, most, amid := m.naps()
	if b.moved {
		b.idle = 0
		b.nap = first
	} else {
		b.idle += b.nap
		b.nap = min(2*b.nap, most)
	}
	if midway {
		b.nap = amid
	}
	return b.nap
}

package driving

import "time"

// Looks without progress before a driver sleeps.
const (
	// spinPolls: where each rank has a core of its own. About 0.3 ms, which outlasts a peer's scheduling hiccup.
	spinPolls = 2000
	// politePolls is after how many of these the driver begins to give its core away, at every politeEvery-th.
	politePolls = 100
	politeEvery = 8
	// yieldPolls: where ranks share cores. Each gives the core away, which is cheaper than a sleep and the ring
	// that ends it, also when nobody takes the core.
	yieldPolls = 100
	// polledPolls: for an operation that makes progress only when it is polled. All its members have begun it,
	// so the wait is not long.
	polledPolls = 20000
	// wearyPolls: after a wait of longWait. A late peer rings the bell.
	wearyPolls = 50
	longWait   = 20 * time.Millisecond
	// checkPolls is between two looks at the clock while a driver spins: about 20 µs. Where cores are shared with
	// other programs, a poll of an operation may take as long as all of these programs may run, so polledCheck is
	// smaller.
	checkPolls  = 128
	polledCheck = 16
	// workedCheck is between two looks at the clock while looks make progress: other threads may keep a driver at work
	// for as long as they submit. A look at the clock costs some 50 ns, and such a look 0.1 µs and more.
	workedCheck = 32
)

// spin is how a driver with so many looks without progress goes on: Poll, Yield, Check or Rest.
func (j Job) spin(polls int, polled bool) Action {
	switch {
	case polled && polls < polledPolls:
		switch {
		case polls%polledCheck == 0:
			return Check
		case polls >= politePolls || !j.Spin:
			return Yield
		}
		return Poll
	case !j.Spin:
		if polls < yieldPolls {
			return Yield
		}
		return Rest
	case polls >= spinPolls:
		return Rest
	case polls%checkPolls == 0:
		return Check
	case polls >= politePolls && polls%politeEvery == 0:
		return Yield
	}
	return Poll
}

// Driver is a thread that drives until its own operation has ended: a waiter, or Shutdown.
type Driver struct {
	job   Job
	polls int // looks without progress in a row
	works int // looks with progress since Begin
}

// Begin is the start of a thread's drive. tired: it has waited for longWait before.
func (j Job) Begin(tired bool) Driver {
	d := Driver{job: j}
	if tired {
		d.weary()
	}
	return d
}

// weary leaves wearyPolls before the next sleep.
func (d *Driver) weary() {
	if d.polls = yieldPolls - wearyPolls; d.job.Spin {
		d.polls = spinPolls - wearyPolls
	}
}

// Worked is a look that has made progress: Poll, or Glance.
func (d *Driver) Worked() Action {
	d.polls = 0
	if d.works++; d.works%workedCheck == 0 {
		return Glance
	}
	return Poll
}

// Nothing is a look that has made none. polled is that of Facts.
func (d *Driver) Nothing(polled bool) Action {
	d.polls++
	return d.job.spin(d.polls, polled)
}

// Checked is the answer to Check, Glance and Rest: the time until the deadline.
func (d *Driver) Checked(left time.Duration) Action {
	if left <= 0 {
		return HandOver
	}
	return Poll
}

// Woke is the end of a rest that has taken so long.
func (d *Driver) Woke(after time.Duration) {
	if d.polls = 0; !d.job.Spin || after >= longWait {
		d.weary()
	}
}

// Tires reports whether a wait of this length makes a thread tired: its next wait for the same operation polls less.
func Tires(waited time.Duration) bool { return waited >= longWait }

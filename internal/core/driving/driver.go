package driving

import "time"

// Looks without progress before a driver sleeps.
const (
	// spinPolls: where each rank has a core of its own. It takes about 0.3 ms, longer than a scheduling hiccup of a
	// peer.
	spinPolls = 2000
	// politePolls is the number of such looks after which the driver gives its core away at every politeEvery-th. The
	// first ones take some 15 µs, in which the peers of a small operation often answer. Later the driver offers the
	// core every 1 to 2 µs to a program that shares it after all. An offer that nobody takes costs about as much as two
	// looks. No measurement is kept that tells these values from others of their order.
	//
	// Between hosts the driver offers its core at every look: a look makes a system call for each connection, so an
	// offer adds little to it. If hosts are containers or virtual machines on the same cores, a rank that does not
	// offer its core keeps the message that it waits for from being sent. Four such hosts of one rank, on two cores,
	// took 0.67 ms for an allreduce of 4 bytes before, and 0.1 ms with these offers.
	politePolls = 100
	politeEvery = 8
	// yieldPolls: where ranks share cores. Each look gives the core away. That is cheaper than a sleep and the ring
	// that ends it, even if nobody takes the core. With 4 and 8 ranks on 2 cores, the gradients of ResNet-50 took an
	// eighth less time than with 20.
	yieldPolls = 100
	// polledPolls: for an operation that makes progress only when it is polled. All its members have begun it,
	// so the wait is not long.
	polledPolls = 20000
	// wearyPolls: after a sleep of longWait, and at the start of a thread that has waited for longWait before. Where
	// ranks share cores: after every sleep. A late peer rings the bell, so polling finds little more. The number is
	// half of yieldPolls. Ranks that wait for a late one use 4 to 24 ms of processor time in 2 s, mostly Go's.
	wearyPolls = 50
	// bulkPolls: while the rest of long messages is under way. A look finds only what has just come, and the kernel
	// wakes the driver when a good part is there. Where ranks share cores a look comes round once in 0.2 ms, so more
	// looks than these are as many as one message takes. Four hosts of one rank on two cores reduced 64 MiB in 0.88 s
	// with 2, and in 0.92 s with 32 and before.
	bulkPolls = 2
	// longWait: a peer that is later than this most likely does something else than its part of a collective.
	longWait = 20 * time.Millisecond
	// checkPolls is the number of looks between two looks at the clock while a driver spins, about 20 µs. Where other
	// programs share the cores, a poll of an operation may last as long as these programs may run in turn, so
	// polledCheck is smaller.
	checkPolls  = 128
	polledCheck = 16
	// workedCheck is the number of looks with progress between two looks at the clock, because other threads may keep a
	// driver at work for as long as they submit. A look at the clock costs some 50 ns, and a look with progress 0.1 µs
	// or more.
	workedCheck = 32
)

// spin says how a driver goes on after that many looks without progress: Poll, Yield, Check or Rest. Package engine
// passes the length of each yield to Contention.Yielded.
func (j Job) spin(polls int, polled bool, c *Contention) Action {
	switch {
	case polled && polls < polledPolls:
		switch {
		case polls%polledCheck == 0:
			return Check
		case polls >= politePolls || !j.Spin:
			return Yield
		}
		return Poll
	case c.sleepsAt(polls, j):
		return Rest
	case c.sleeps > 0:
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
	case !j.OneHost, polls >= politePolls && polls%politeEvery == 0:
		return Yield
	}
	return Poll
}

// Driver is a thread that drives until its own operation has ended: a waiter, or Shutdown.
type Driver struct {
	job   Job
	cores *Contention
	polls int // looks without progress in a row
	works int // looks with progress since Begin
}

// Begin is the start of a thread's drive. tired: the thread has waited for longWait before.
func (j Job) Begin(tired bool, c *Contention) Driver {
	d := Driver{job: j, cores: c}
	if tired {
		d.weary()
	}
	return d
}

// weary leaves wearyPolls before the next sleep. While an operation needs polls, the driver polls for as long as
// polledPolls says, as ever.
func (d *Driver) weary() {
	if d.polls = yieldPolls - wearyPolls; d.job.Spin {
		d.polls = spinPolls - wearyPolls
	}
}

// Worked notes a look that has made progress. It returns Poll or Glance.
func (d *Driver) Worked() Action {
	d.polls = 0
	d.cores.found()
	if d.works++; d.works%workedCheck == 0 {
		return Glance
	}
	return Poll
}

// Nothing notes a look without progress, and says how to go on. polled is Facts.Polled. bulk: the driver waits only for
// the rest of long messages (transport.BulkBell).
func (d *Driver) Nothing(polled, bulk bool) Action {
	d.polls++
	if bulk && !polled && d.polls >= bulkPolls {
		return Rest
	}
	return d.job.spin(d.polls, polled, d.cores)
}

// Checked follows Check, Glance and Rest. left is the time until the deadline.
func (d *Driver) Checked(left time.Duration) Action {
	if left <= 0 {
		return HandOver
	}
	return Poll
}

// Woke notes the end of a rest. after is how long the rest has taken.
func (d *Driver) Woke(after time.Duration) {
	d.cores.slept()
	if d.polls = 0; !d.job.Spin || after >= longWait {
		d.weary()
	}
}

// Tires reports whether a wait of this length makes a thread tired: its next wait for the same operation polls less.
func Tires(waited time.Duration) bool { return waited >= longWait }

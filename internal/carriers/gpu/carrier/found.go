package carrier

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/carriers/nccl"
	"github.com/gorovod/gorovod/internal/core/collective"
)

// founding makes a lane's communicator. Its steps, of which each is polled:
//
//	claiming ─▶ joining ─▶ joined ─▶ queuing ─▶ trying ─▶ tried ─▶ over
//	    └────────────────────┴────────────────────────────┴─▶ ending ─┘
//
//	claiming  the host's carrier gathers the claims of all members; that of member 0 also names the communicator
//	joining   NCCL makes the communicator, or the deadline passes; in Mode Auto the trial has its numbers there
//	joined    the members tell each other whether they have both
//	queuing   the trial waits for its turn, like any operation, and for the device; only in Mode Auto, like the next two
//	trying    an allreduce of known numbers, or the deadline passes
//	tried     the members tell each other whether they had the right sums
//	ending    a member has failed: NCCL ends the communicator, or the deadline passes. Only in Mode Auto
//
// A member that fails takes part in the next exchange, and says there why it has failed. So all members end alike: with
// a communicator, or staged, or in Mode NCCL with an error.
type founding struct {
	lane     *Lane
	step     func(f *founding) (done bool, err error)
	op       collective.Op // of the host's carrier
	args     collective.Arguments
	out      []byte // the gathered bytes of all members
	counts   []int64
	library  Library
	why      string // this member's failure
	deadline time.Time
	program  nccl.Program
	issued   bool   // program
	numbers  []byte // the trial's, on the host
}

// Found implements engine.DeviceCarrier.
func (l *Lane) Found() collective.Op {
	if l.founded {
		return nil
	}
	f := &l.found
	*f = founding{lane: l}
	if l.devices.options.Mode == Staged {
		l.founded = true
		return nil
	}
	err := f.search()
	defer f.watched()()
	f.gather(f.claim(err), claimBytes)
	f.step = (*founding).claiming
	return f
}

// watched makes the watch look after this member until stop is called, because a member that hangs in a call takes part
// in no exchange, and the others cannot know for which member they wait.
func (f *founding) watched() (stop func()) {
	w := &f.lane.devices.watch
	w.making.Store(true)
	w.enter()
	return func() {
		w.leave()
		w.making.Store(false)
	}
}

// Advance takes the next step, if it can.
func (f *founding) Advance() (bool, error) {
	defer f.watched()()
	if f.op != nil {
		done, err := f.op.Advance()
		if err != nil || !done {
			return false, err
		}
		f.op = nil
		f.lane.moved++
	}
	return f.step(f)
}

// gather begins an exchange: all members get each member's bytes, of which mine are this one's.
func (f *founding) gather(mine []byte, bytes int) {
	n := len(f.lane.members)
	f.out, f.counts = make([]byte, n*bytes), make([]int64, n)
	for m := range f.counts {
		f.counts[m] = int64(bytes)
	}
	f.args = collective.Arguments{Kind: collective.Allgather, In: mine, Out: f.out, Counts: f.counts}
	f.op = f.lane.host.Start(&f.args)
}

// search finds the process's device and NCCL. It has a limit of its own, so the watch need not look.
func (f *founding) search() error {
	_, err := f.lane.devices.at(-1)
	if err == nil {
		f.library, err = f.lane.devices.library()
	}
	return err
}

// claim returns this member's claim, encoded. err is why there is no device, or no NCCL.
func (f *founding) claim(err error) []byte {
	l := f.lane
	var c claim
	if err == nil {
		c, err = l.claim(f)
	}
	if err != nil {
		c.Why = err.Error()
	}
	return c.encode()
}

func (l *Lane) claim(f *founding) (c claim, err error) {
	if err = l.open(); err != nil {
		return c, err
	}
	about, err := l.devices.system.Device(l.place.device)
	if c.UUID = about.UUID; err != nil {
		return c, err
	}
	c.Version, c.Shares = f.library.Version(), f.library.SharesDevices()
	c.Float8 = f.library.Has(nccl.Float8E4M3) && about.Major >= float8Capability
	if l.rank == 0 {
		c.ID, err = f.library.NewUniqueID()
	}
	return c, err
}

func (f *founding) claiming() (bool, error) {
	l := f.lane
	claims := make([]claim, len(l.members))
	for m := range claims {
		claims[m] = decodeClaim(f.out[m*claimBytes:])
	}
	if why := unfit(claims, l.describe); why != "" {
		return f.giveUp(why)
	}
	l.float8 = !slices.ContainsFunc(claims, func(c claim) bool { return !c.Float8 })
	f.deadline = time.Now().Add(l.devices.options.Deadline)
	comm, err := f.library.NewComm(l.place.context, len(l.members), claims[0].ID, l.rank)
	if err != nil {
		f.why = err.Error()
	} else {
		l.comm = comm
		l.over = make(chan struct{})
		l.current.Store(&comm)
		if cause := l.devices.aborted(); cause != nil { // Abort may not have seen this communicator
			l.abort()
			f.why = cause.Error()
		}
	}
	f.step = (*founding).joining
	return false, nil
}

// overdue reports whether the deadline has passed, and then notes what as this member's failure.
func (f *founding) overdue(what string) bool {
	if time.Now().Before(f.deadline) {
		return false
	}
	f.why = fmt.Sprintf("%s after %v", what, f.lane.devices.options.Deadline)
	return true
}

func (f *founding) joining() (bool, error) {
	if f.why == "" {
		ready, err := f.lane.comm.Ready()
		if err == nil && ready && f.lane.devices.options.Mode == Auto {
			err = f.prepare()
		}
		switch {
		case err != nil:
			f.why = err.Error()
		case !ready && !f.overdue("NCCL has not made the communicator"):
			return false, nil
		}
	}
	f.exchange((*founding).joined)
	return false, nil
}

// exchange tells all members this one's failure, or that it has none.
func (f *founding) exchange(next func(*founding) (bool, error)) {
	f.gather(padded(f.why, maxWhy), maxWhy)
	f.step = next
}

// failures says which members have failed, after exchange.
func (f *founding) failures() string {
	whys := make([]string, len(f.lane.members))
	for m := range whys {
		whys[m] = unpadded(f.out[m*maxWhy : (m+1)*maxWhy])
	}
	return unready(whys, f.lane.describe)
}

func (f *founding) joined() (bool, error) {
	if why := f.failures(); why != "" {
		return f.giveUp("a communicator could not be made: " + why)
	}
	if f.lane.devices.options.Mode != Auto {
		return f.over()
	}
	f.lane.queue()
	f.step = (*founding).queuing
	return false, nil
}

func (f *founding) queuing() (bool, error) {
	l := f.lane
	if comes, err := l.comes(); err != nil || !comes {
		return false, err
	}
	alone, err := l.alone() // else the deadline would include the time of other operations
	if err == nil && !alone {
		return false, nil
	}
	f.try()
	if err != nil {
		f.why = err.Error()
	}
	f.step = (*founding).trying
	return false, nil
}

// trialNumbers is how many numbers the trial adds: more than fit into one chunk of NCCL's.
const trialNumbers = 1 << 18

// trialNumber is element i of a member's numbers: small, so that every sum of them is exact in float32, in whatever
// order NCCL adds, for as many members as a job may have.
func trialNumber(member, i int) int { return member%16 + i%256 }

// trialSum is element i of the sum of all members' numbers.
func trialSum(members, i int) int {
	rest := members % 16
	return members/16*(15*16/2) + rest*(rest-1)/2 + members*(i%256)
}

// trialBytes is the size of the trial's numbers.
const trialBytes = 4 * trialNumbers

// prepare allocates the trial's memory, on the host and on the device, and copies this member's numbers there. A member
// that cannot says so before the trial, because the others would wait for it on the device.
func (f *founding) prepare() (err error) {
	l := f.lane
	if f.numbers, err = l.Reserve(trialBytes); err == nil {
		_, err = l.scratch.of(trialBytes, l, false)
	}
	if err != nil {
		return fmt.Errorf("memory for the trial: %w", err)
	}
	for i := range trialNumbers {
		binary.NativeEndian.PutUint32(f.numbers[4*i:], math.Float32bits(float32(trialNumber(l.rank, i))))
	}
	err = l.place.context.CopyFromHost(l.scratch.at, unsafe.Pointer(&f.numbers[0]), trialBytes, l.stream)
	if err != nil {
		return fmt.Errorf("numbers for the trial: %w", err)
	}
	return nil
}

// try writes the program of an allreduce on the trial's numbers.
func (f *founding) try() {
	l := f.lane
	memory := l.scratch.at
	p := &f.program
	p.Reset(l.stream)
	p.AllReduce(uintptr(memory), uintptr(memory), trialNumbers, nccl.Float32, nccl.Sum)
	p.Steps = append(p.Steps, nccl.Step{Kind: nccl.CopyToHost, From: uint64(memory),
		To: uint64(addressOf(f.numbers)), Count: trialBytes})
	p.Record(l.done)
	f.deadline = time.Now().Add(l.devices.options.Deadline)
}

func (f *founding) trying() (bool, error) {
	if f.why == "" {
		done, err := f.sums()
		switch {
		case err != nil:
			f.why = err.Error()
		case !done && !f.overdue("the trial of NCCL has not ended"):
			return false, nil
		}
	}
	f.exchange((*founding).tried)
	return false, nil
}

// sums reports whether the sums are there, and checks them.
func (f *founding) sums() (bool, error) {
	l := f.lane
	if !f.issued {
		issued, err := l.issue(&f.program)
		if f.issued = issued; err != nil || !issued {
			return false, err
		}
	}
	if reached, err := l.place.context.Reached(l.done); err != nil || !reached {
		if err == nil {
			_, err = l.comm.Ready()
		}
		return false, err
	}
	l.devices.order.ended(l)
	for i := range trialNumbers {
		want := float32(trialSum(len(l.members), i))
		if got := math.Float32frombits(binary.NativeEndian.Uint32(f.numbers[4*i:])); got != want {
			return false, fmt.Errorf("the trial of NCCL has a wrong result: sum %d of %d is %v, not %v", i,
				trialNumbers, got, want)
		}
	}
	return true, nil
}

func (f *founding) tried() (bool, error) {
	if why := f.failures(); why != "" {
		return f.giveUp(why)
	}
	return f.over()
}

// giveUp makes all operations of the lane staged. In Mode NCCL it returns an error instead, which ends the job.
func (f *founding) giveUp(why string) (bool, error) {
	l := f.lane
	l.abort()
	l.comm = nil
	if l.devices.options.Mode == NCCL {
		return false, fmt.Errorf("NCCL cannot carry tensors of devices, as GOROVOD_GPU=nccl asks for: %s", why)
	}
	if l.rank == 0 {
		l.devices.options.Log.Warn("tensors of devices are copied through host memory, because NCCL cannot carry "+
			"them: "+why+" (GOROVOD_GPU=staged asks for that, and is silent)", "process set", l.id)
	}
	f.deadline = time.Now().Add(l.devices.options.Deadline)
	f.step = (*founding).ending
	return false, nil
}

// ending waits for the end of the communicator, because the trial may still be on the device. Until then the trial
// keeps its turn.
func (f *founding) ending() (bool, error) {
	if f.lane.over != nil && time.Now().Before(f.deadline) {
		select {
		case <-f.lane.over:
		default:
			return false, nil
		}
	}
	return f.over()
}

func (f *founding) over() (bool, error) {
	l := f.lane
	l.devices.order.leave(&l.turn) // the trial may not have been issued
	*f = founding{}
	l.founded = true
	l.moved++
	return true, nil
}

// describe names a member.
func (l *Lane) describe(member int) string { return l.devices.options.Describe(l.members[member]) }

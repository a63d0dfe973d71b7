package carrier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/carriers/nccl"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// The machine of these tests: devices whose memory only their streams can use, streams that run late, and NCCL among
// the ranks of this process. Other tests check the rules of CUDA and NCCL themselves, on stand-ins for their libraries.

// machine is the state that the ranks share.
type machine struct {
	t     testing.TB
	mu    sync.Mutex
	cond  *sync.Cond
	comms map[nccl.UniqueID]*ring
	next  byte
	wrong bool  // sums are wrong
	deaf  int   // this member never makes a communicator; -1: none
	live  int   // communicators
	fails error // of all communicators, once their operations are on the device
}

func newMachine(t testing.TB) *machine {
	m := &machine{t: t, comms: make(map[nccl.UniqueID]*ring), deaf: -1}
	m.cond = sync.NewCond(&m.mu)
	return m
}

// ring is a communicator of all its members.
type ring struct {
	size    int
	joined  int
	aborted bool
	rounds  map[int]*round
}

// round is one group of calls of all members.
type round struct {
	calls map[int][]nccl.Step // by member
	outs  map[int]func()
	left  int
}

// device is a rank's System and Context.
type device struct {
	machine  *machine
	rank     int
	far      []byte
	near     []byte
	mu       sync.Mutex
	used     int                  // of all addresses: none is given out again
	pieces   map[cuda.Address]int // their bytes
	room     int                  // bytes that are left
	streams  map[cuda.Stream]*stream
	freed    []*stream // which may still have work
	events   map[cuda.Event]*event
	next     uintptr
	without  error // Library's; nil if there is NCCL
	uncopied error // of the copy of the trial's numbers to the device
	version  int
	uuid     string
	shares   bool // NCCL allows other ranks there
	major    int  // compute capability
	graphs   bool
	making   func() // called while a communicator is made
	stuck    bool   // a stream never ends its work while the engine lives
	ending   func() // called in an abort of a communicator, before the wait for the device
	issued   atomic.Int32
	hangs    atomic.Pointer[chan struct{}] // calls of Reached hang until it is closed
}

const deviceBytes = 64 << 20

func (m *machine) device(rank int) *device {
	fd, err := unix.MemfdCreate("device", 0)
	if err != nil {
		m.t.Fatal(err)
	}
	defer unix.Close(fd)
	d := &device{machine: m, rank: rank, streams: make(map[cuda.Stream]*stream), events: make(map[cuda.Event]*event),
		version: 22800, uuid: fmt.Sprint("GPU-", rank), major: 9, pieces: make(map[cuda.Address]int), room: deviceBytes}
	if err = unix.Ftruncate(fd, deviceBytes); err == nil {
		if d.near, err = unix.Mmap(fd, 0, deviceBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			d.far, err = unix.Mmap(fd, 0, deviceBytes, unix.PROT_NONE, unix.MAP_SHARED)
		}
	}
	if err != nil {
		m.t.Fatal(err)
	}
	d.streams[0] = newStream()
	m.t.Cleanup(func() {
		d.mu.Lock()
		streams, freed := d.streams, d.freed
		d.streams = nil // memory may still be freed
		for s, st := range streams {
			close(st.work)
			if s != 0 && !d.stuck {
				m.t.Errorf("rank %d leaks a stream", rank)
			}
		}
		d.mu.Unlock()
		for _, st := range streams {
			<-st.ended
		}
		for _, st := range freed {
			<-st.ended
		}
		unix.Munmap(d.near)
		unix.Munmap(d.far)
	})
	return d
}

// at returns memory as the device's own work can use it.
func (d *device) at(a uintptr, n int) []byte {
	if n == 0 {
		return nil
	}
	off := a - uintptr(unsafe.Pointer(&d.far[0]))
	return d.near[off : off+uintptr(n)]
}

// stream runs its work in order, each piece after a while.
type stream struct {
	work  chan func()
	ended chan struct{}
}

func newStream() *stream {
	s := &stream{work: make(chan func(), 1<<16), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for f := range s.work {
			if rand.IntN(4) == 0 {
				time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
			}
			f()
		}
	}()
	return s
}

type event struct{ recorded, reached int }

func (d *device) Context(int) (Context, error) { return d, nil }
func (d *device) Library() (Library, error)    { return (*fakeLibrary)(d), d.without }

func (d *device) Underway() (string, time.Duration) { return "", 0 }

func (d *device) queue(s cuda.Stream, f func()) {
	d.mu.Lock()
	st := d.streams[s]
	d.mu.Unlock()
	st.work <- f
}

func (d *device) Device(int) (cuda.Device, error) {
	return cuda.Device{UUID: d.uuid, Major: d.major}, nil
}

func (d *device) NewStream() (cuda.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	d.streams[cuda.Stream(d.next)] = newStream()
	return cuda.Stream(d.next), nil
}

func (d *device) FreeStream(s cuda.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.streams[s].work)
	d.freed = append(d.freed, d.streams[s])
	delete(d.streams, s)
	return nil
}

func (d *device) Capturing(cuda.Stream) (bool, error) { return d.graphs, nil }

func (d *device) NewEvent() (cuda.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	d.events[cuda.Event(d.next)] = new(event)
	return cuda.Event(d.next), nil
}

func (d *device) FreeEvent(e cuda.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.events, e)
	return nil
}

func (d *device) Record(e cuda.Event, s cuda.Stream) error {
	d.mu.Lock()
	ev := d.events[e]
	ev.recorded++
	n := ev.recorded
	d.mu.Unlock()
	d.queue(s, func() {
		d.machine.mu.Lock()
		ev.reached = max(ev.reached, n)
		d.machine.cond.Broadcast()
		d.machine.mu.Unlock()
	})
	return nil
}

func (d *device) Reached(e cuda.Event) (bool, error) {
	if hang := d.hangs.Load(); hang != nil {
		<-*hang
	}
	d.mu.Lock()
	ev := d.events[e]
	n := ev.recorded
	d.mu.Unlock()
	d.machine.mu.Lock()
	defer d.machine.mu.Unlock()
	return ev.reached >= n, nil
}

func (d *device) Wait(s cuda.Stream, e cuda.Event) error {
	d.mu.Lock()
	ev := d.events[e]
	n := ev.recorded
	d.mu.Unlock()
	d.queue(s, func() {
		d.machine.mu.Lock()
		for ev.reached < n {
			d.machine.cond.Wait()
		}
		d.machine.mu.Unlock()
	})
	return nil
}

func (d *device) Alloc(size int) (cuda.Address, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	size = aligned(size)
	if size > d.room {
		return 0, cuda.ErrOutOfMemory
	}
	a := cuda.Address(uintptr(unsafe.Pointer(&d.far[d.used])))
	d.used += size
	d.room -= size
	d.pieces[a] = size
	return a, nil
}

// Free waits for the device, as CUDA may.
func (d *device) Free(a cuda.Address) error {
	d.idle()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room += d.pieces[a]
	delete(d.pieces, a)
	return nil
}

func (d *device) AllocHost(size int) (unsafe.Pointer, error) {
	return unsafe.Pointer(&make([]byte, size)[0]), nil
}

// FreeHost waits for the device, too.
func (d *device) FreeHost(unsafe.Pointer) error {
	d.idle()
	return nil
}

func (d *device) Copy(to, from cuda.Address, size int, s cuda.Stream) error {
	d.queue(s, func() { copy(d.at(uintptr(to), size), d.at(uintptr(from), size)) })
	return nil
}

func (d *device) CopyFromHost(to cuda.Address, from unsafe.Pointer, size int, s cuda.Stream) error {
	if size == trialBytes && d.uncopied != nil {
		return d.uncopied
	}
	d.queue(s, func() { copy(d.at(uintptr(to), size), unsafe.Slice((*byte)(from), size)) })
	return nil
}

func (d *device) CopyToHost(to unsafe.Pointer, from cuda.Address, size int, s cuda.Stream) error {
	d.queue(s, func() { copy(unsafe.Slice((*byte)(to), size), d.at(uintptr(from), size)) })
	return nil
}

func (d *device) Zero(a cuda.Address, size int, s cuda.Stream) error {
	d.queue(s, func() { clear(d.at(uintptr(a), size)) })
	return nil
}

// fakeLibrary is the NCCL of a rank.
type fakeLibrary device

func (l *fakeLibrary) Version() int          { return l.version }
func (l *fakeLibrary) SharesDevices() bool   { return l.shares }
func (l *fakeLibrary) Has(t nccl.DType) bool { return t < nccl.Float8E4M3 || l.version >= 22400 }

func (l *fakeLibrary) NewUniqueID() (id nccl.UniqueID, err error) {
	l.machine.mu.Lock()
	defer l.machine.mu.Unlock()
	l.machine.next++
	id[0], id[127] = l.machine.next, 1
	return id, nil
}

func (l *fakeLibrary) NewComm(_ Context, size int, id nccl.UniqueID, rank int) (Comm, error) {
	if l.making != nil {
		l.making()
	}
	m := l.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.comms[id] == nil {
		m.comms[id] = &ring{size: size, rounds: make(map[int]*round)}
	}
	if rank != m.deaf {
		m.comms[id].joined++
	}
	m.live++
	return &comm{device: (*device)(l), ring: m.comms[id], rank: rank, factors: make(map[nccl.ReduceOp]scale)}, nil
}

type scale struct {
	dtype  nccl.DType
	factor []byte
}

// comm is a member's part of a communicator.
type comm struct {
	device  *device
	ring    *ring
	rank    int
	turn    int
	factors map[nccl.ReduceOp]scale
	over    bool
}

func (c *comm) Ready() (bool, error) {
	c.device.machine.mu.Lock()
	defer c.device.machine.mu.Unlock()
	if c.ring.aborted {
		return false, nccl.ErrAborted
	}
	if c.device.machine.fails != nil {
		return false, c.device.machine.fails
	}
	return c.ring.joined == c.ring.size, nil
}

// Advance puts a program into its stream, at the second or third try.
func (c *comm) Advance(p *nccl.Program) (bool, error) {
	if rand.IntN(3) > 0 {
		return false, nil
	}
	d := c.device
	var group []nccl.Step
	depth := 0
	for _, s := range p.Steps {
		from, to, n := cuda.Address(s.From), cuda.Address(s.To), int(s.Count)
		switch s.Kind {
		case nccl.WaitEvent:
			d.Wait(p.Stream, cuda.Event(s.From))
		case nccl.RecordEvent:
			d.Record(cuda.Event(s.To), p.Stream)
		case nccl.Copy:
			d.Copy(to, from, n, p.Stream)
		case nccl.Zero:
			d.Zero(to, n, p.Stream)
		case nccl.CopyToHost:
			d.CopyToHost(*(*unsafe.Pointer)(unsafe.Pointer(&to)), from, n, p.Stream)
		case nccl.GroupStart:
			depth++
		case nccl.GroupEnd:
			depth--
			c.enqueue(p.Stream, group)
			group = nil
		default:
			group = append(group, s)
			if depth == 0 {
				c.enqueue(p.Stream, group)
				group = nil
			}
		}
	}
	d.issued.Add(1)
	return true, nil
}

func (c *comm) enqueue(s cuda.Stream, calls []nccl.Step) {
	turn := c.turn
	c.turn++
	c.device.queue(s, func() { c.run(turn, calls) })
}

// run does one group together with the other members: all read, then all write.
func (c *comm) run(turn int, calls []nccl.Step) {
	m := c.device.machine
	m.mu.Lock()
	r := c.ring.rounds[turn]
	if r == nil {
		r = &round{calls: make(map[int][]nccl.Step), outs: make(map[int]func())}
		c.ring.rounds[turn] = r
	}
	r.calls[c.rank] = calls
	var mine [][]byte
	for _, s := range calls {
		size := s.DType.Size() * int(s.Count)
		if s.Kind == nccl.ReduceScatter {
			size *= c.ring.size
		}
		if s.From != 0 && s.Kind != nccl.Recv {
			mine = append(mine, append([]byte(nil), c.scaled(s, c.device.at(uintptr(s.From), size))...))
		} else {
			mine = append(mine, nil)
		}
	}
	inputs[r] = add(inputs[r], c.rank, mine)
	m.cond.Broadcast()
	for len(r.calls) < c.ring.size && !c.ring.aborted {
		m.cond.Wait()
	}
	if !c.ring.aborted {
		c.write(calls, inputs[r], r.calls)
	}
	if r.left++; r.left == c.ring.size {
		delete(inputs, r)
		delete(c.ring.rounds, turn)
	}
	m.mu.Unlock()
}

// inputs has the inputs of each round, by member and call. machine.mu guards it.
var inputs = make(map[*round]map[int][][]byte)

func add(to map[int][][]byte, rank int, mine [][]byte) map[int][][]byte {
	if to == nil {
		to = make(map[int][][]byte)
	}
	to[rank] = mine
	return to
}

var ours = map[nccl.DType]tensor.DType{
	nccl.Uint8: tensor.Uint8, nccl.Int8: tensor.Int8, nccl.Int32: tensor.Int32, nccl.Int64: tensor.Int64,
	nccl.Float16: tensor.Float16, nccl.Float32: tensor.Float32, nccl.Float64: tensor.Float64,
	nccl.BFloat16: tensor.BFloat16, nccl.Float8E4M3: tensor.Float32, nccl.Float8E5M2: tensor.Float32, // see wide
}

// scaled returns an input times the factor of its operation.
func (c *comm) scaled(s nccl.Step, in []byte) []byte {
	f, ok := c.factors[s.Op]
	if !ok || s.Kind < nccl.AllReduce {
		return in
	}
	factor := 0.0
	switch len(f.factor) {
	case 4:
		factor = float64(*(*float32)(unsafe.Pointer(&f.factor[0])))
	case 8:
		factor = *(*float64)(unsafe.Pointer(&f.factor[0]))
	case 2:
		h := binary.NativeEndian.Uint16(f.factor)
		if factor = float64(tensor.Float16ToFloat32(h)); f.dtype == nccl.BFloat16 {
			factor = float64(tensor.BFloat16ToFloat32(h))
		}
	}
	if len(f.factor) == 1 {
		factor = float64(tensor.Float8ToFloat32(float8s[f.dtype], f.factor[0]))
	}
	in = wide(s.DType, in)
	out := make([]byte, len(in))
	reduce.Scale(ours[s.DType], out, in, factor)
	return narrow(s.DType, out)
}

// float8s maps NCCL's floats of 8 bits to ours.
var float8s = map[nccl.DType]tensor.DType{
	nccl.Float8E4M3: tensor.Float8E4M3FN, nccl.Float8E5M2: tensor.Float8E5M2,
}

// wide returns floats of 8 bits as float32, and other types unchanged.
func wide(t nccl.DType, in []byte) (out []byte) {
	dt, ok := float8s[t]
	if !ok {
		return in
	}
	for _, b := range in {
		out = binary.NativeEndian.AppendUint32(out, math.Float32bits(tensor.Float8ToFloat32(dt, b)))
	}
	return out
}

// narrow undoes wide; the numbers must be exact.
func narrow(t nccl.DType, in []byte) (out []byte) {
	dt, ok := float8s[t]
	if !ok {
		return in
	}
	for ; len(in) > 0; in = in[4:] {
		b, exact := tensor.Float8Of(dt, math.Float32frombits(binary.NativeEndian.Uint32(in)))
		if !exact {
			panic("a test has numbers that are not exact")
		}
		out = append(out, b)
	}
	return out
}

// write computes this member's outputs.
func (c *comm) write(calls []nccl.Step, in map[int][][]byte, all map[int][]nccl.Step) {
	sums := func(i int) []byte {
		s := calls[i]
		var srcs [][]byte
		for m := range c.ring.size {
			srcs = append(srcs, wide(s.DType, in[m][i]))
		}
		out := make([]byte, len(srcs[0]))
		op, factor := tensor.Sum, 1.0
		switch s.Op {
		case nccl.Product:
			op = tensor.Product
		case nccl.Max:
			op = tensor.Max
		case nccl.Min:
			op = tensor.Min
		case nccl.Average:
			factor = 1 / float64(c.ring.size)
		}
		reduce.Reduce(ours[s.DType], op, out, srcs, factor)
		out = narrow(s.DType, out)
		if c.device.machine.wrong {
			out[0]++
		}
		return out
	}
	for i, s := range calls {
		n := s.DType.Size() * int(s.Count)
		out := func(p []byte) { copy(c.device.at(uintptr(s.To), len(p)), p) }
		switch s.Kind {
		case nccl.AllReduce:
			out(sums(i))
		case nccl.Reduce:
			if c.rank == int(s.Peer) {
				out(sums(i))
			}
		case nccl.ReduceScatter:
			out(sums(i)[c.rank*n : (c.rank+1)*n])
		case nccl.Broadcast:
			out(in[int(s.Peer)][i])
		case nccl.AllGather:
			var p []byte
			for m := range c.ring.size {
				p = append(p, in[m][i]...)
			}
			out(p)
		case nccl.Recv:
			for j, other := range all[int(s.Peer)] {
				if other.Kind == nccl.Send && int(other.Peer) == c.rank {
					out(in[int(s.Peer)][j])
				}
			}
		}
	}
}

func (c *comm) NewScaledSum(t nccl.DType, factor []byte) (nccl.ReduceOp, error) {
	c.device.machine.mu.Lock() // streams read the factors
	defer c.device.machine.mu.Unlock()
	op := nccl.ReduceOp(100 + len(c.factors))
	c.factors[op] = scale{t, factor}
	return op, nil
}

func (c *comm) FreeScaledSum(op nccl.ReduceOp) error { return nil }
func (c *comm) Finalize() error                      { return nil }
func (c *comm) Destroy() error                       { return c.end(false) }

// Abort waits for the device, as NCCL may.
func (c *comm) Abort() error {
	err := c.end(true)
	if c.device.ending != nil {
		c.device.ending()
	}
	c.device.idle()
	return err
}

// idle waits until all streams have done what they have now.
func (d *device) idle() {
	d.mu.Lock()
	var ends []chan struct{}
	for _, s := range d.streams {
		end := make(chan struct{})
		s.work <- func() { close(end) }
		ends = append(ends, end)
	}
	for _, s := range d.freed {
		ends = append(ends, s.ended)
	}
	d.mu.Unlock()
	for _, end := range ends {
		<-end
	}
}

func (c *comm) end(abort bool) error {
	m := c.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.over {
		return errors.New("the communicator is over already")
	}
	c.over = true
	m.live--
	if abort {
		c.ring.aborted = true
	}
	m.cond.Broadcast()
	return nil
}

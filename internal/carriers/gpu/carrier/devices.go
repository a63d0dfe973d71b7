package carrier

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/engine"
)

// Options configure Devices. Mode and Deterministic are the same on all ranks.
type Options struct {
	Rank int
	Mode Mode
	// Deadline limits the making of a communicator, and then its trial, from the time at which the device is free for
	// the trial. It also limits each call of CUDA or NCCL that the driver makes for them. The search for CUDA and NCCL,
	// the making of a context, and any other call of the driver may take inUse times as long.
	Deadline time.Duration
	// Deterministic keeps reductions from NCCL, which promises no order of the operands.
	Deterministic bool
	// Async ends an operation for the program when it is in the device's stream. Tensor.Wait and Tensor.Reached tell
	// when its result is there.
	Async bool
	// Default is the device of a rank that has submitted no tensor. If the process does not see that device, device 0
	// is taken.
	Default int
	// Abort, if set, ends the job. It may be called on any goroutine.
	Abort func(cause error)
	// End, if set, ends the process. It is called if a call of the driver takes longer than inUse Deadlines, and still
	// lasts a Deadline after an abort, because then neither the driver nor the program could ever go on; and if the
	// dynamic loader hangs. last says why.
	End func(last error)
	// Reclaim, if set, makes the program give back memory of a device that it keeps but does not use. The driver calls
	// it after a failed allocation, waits for it, and tries the allocation again.
	Reclaim func(device int)
	// Describe names a world rank in errors and in the log.
	Describe func(rank int) string
	Log      *slog.Logger
}

// Mode is how tensors of devices travel.
type Mode uint8

// The modes.
const (
	Auto   Mode = iota // by NCCL if that passes its trial, else staged
	NCCL               // by NCCL, or not at all
	Staged             // through host memory
	Off                // not at all
)

// Devices are the devices of one rank's process in one generation of the world.
type Devices struct {
	system  System
	options Options

	contexts  search[located]
	libraries search[Library]

	mu      sync.Mutex
	place   *place // of the first tensor; all others are there, too
	lanes   map[*Lane]bool
	lost    error         // of Abort
	ends    chan struct{} // closed by Abort
	told    sync.Once     // why Takes has said no
	settles settling
	keeps   keeping

	order order
	watch watch
	ended time.Time // when the first lane was closed after an abort; zero before; the driver's
}

var _ engine.Devices = (*Devices)(nil)

// New makes the Devices of a rank. Nothing is loaded before the first tensor.
func New(s System, o Options) *Devices {
	if o.Describe == nil {
		o.Describe = func(rank int) string { return fmt.Sprintf("rank %d", rank) }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Devices{system: s, options: o, lanes: make(map[*Lane]bool), ends: make(chan struct{})}
	d.contexts.without = "nccl"
	d.watch.devices, d.watch.hurry, d.watch.born = d, make(chan struct{}, 1), time.Now()
	return d
}

// place is a device in use.
type place struct {
	device  int
	context Context
	events  pool
	bin     bin
	outputs outputs
	reclaim func(device int) // Options.Reclaim
	watch   *watch
}

// alloc allocates memory of the device. If there is too little, alloc frees the memory kept for outputs, waits for the
// bin, asks the program to give back memory that it does not use, and tries again.
func (p *place) alloc(bytes int) (cuda.Address, error) {
	a, err := p.context.Alloc(bytes)
	if !errors.Is(err, cuda.ErrOutOfMemory) {
		return a, err
	}
	p.dropOutputs()
	again := p.bin.empties(drainTime)
	if p.reclaim != nil {
		p.watch.outside(func() { p.reclaim(p.device) }) // that is the program's, and may wait for its other threads
		again = true
	}
	if !again {
		return 0, err
	}
	return p.context.Alloc(bytes)
}

// free frees memory of the device when nothing there uses it any more. The caller does not wait.
func (p *place) free(a cuda.Address) {
	p.bin.throw(func() { _ = p.context.Free(a) }) // the device is lost
}

// freeHost is free for memory of AllocHost.
func (p *place) freeHost(at unsafe.Pointer) {
	p.bin.throw(func() { _ = p.context.FreeHost(at) }) // the device is lost
}

// located is a context and its device.
type located struct {
	device  int
	context Context
}

// at returns the place of the process's device. The first call decides which that is; -1 is whichever it is. It makes
// the context, which may take seconds; see search.find for how long the caller waits.
func (d *Devices) at(device int) (*place, error) {
	d.mu.Lock()
	p := d.place
	d.mu.Unlock()
	if p == nil {
		found, err := d.contexts.find(d, func() (located, error) { return d.locate(device) })
		if err != nil {
			return nil, err
		}
		p = d.use(found)
	}
	return p, p.is(device)
}

// use makes a device the one of this process, unless there is one.
func (d *Devices) use(l located) *place {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.place == nil {
		d.place = &place{device: l.device, context: l.context, reclaim: d.options.Reclaim, watch: &d.watch}
		d.place.bin.failed = func(err error) { d.options.Log.Error("free memory of a device", "error", err) }
	}
	return d.place
}

// is says why p is not the place of a device, nil if it is.
func (p *place) is(device int) error {
	if device < 0 || p.device == device {
		return nil
	}
	return fmt.Errorf("the tensor is on device %d, but the first tensor of this process was on device %d, "+
		"and its communicators are there; give each rank one device (PyTorch: call "+
		"torch.cuda.set_device(hvd.local_rank()) before anything else, or set GOROVOD_GPU=staged; JAX: set "+
		"CUDA_VISIBLE_DEVICES)", device, p.device)
}

// locate makes the context of a device; below 0, of the default device.
func (d *Devices) locate(device int) (located, error) {
	any := device < 0
	if any {
		device = d.options.Default
	}
	c, err := d.system.Context(device)
	if none := new(cuda.NoDevice); any && errors.As(err, &none) {
		device = 0 // each process of the host sees its own device only
		c, err = d.system.Context(device)
	}
	return located{device, c}, err
}

// library finds NCCL.
func (d *Devices) library() (Library, error) { return d.libraries.find(d, d.system.Library) }

// Usable returns why tensors of a device cannot be submitted, or nil if they can. The device of the first call becomes
// the one of this process.
func (d *Devices) Usable(device int) error {
	_, err := d.at(device)
	return err
}

// Takes reports whether the program is to submit tensors of a device as they are. If not, the program submits copies in
// host memory. In Mode Auto it returns false if this process cannot use the device or has no NCCL, and logs the reason
// once. In Mode Staged it returns false. In the other modes it returns true, also in Mode Off, so that the engine sees
// the tensors and refuses them.
func (d *Devices) Takes(device int) bool {
	switch d.options.Mode {
	case Auto:
	case Staged:
		return false
	default:
		return true
	}
	err := d.Usable(device)
	if err == nil {
		_, err = d.library()
	}
	if err != nil && d.aborted() == nil {
		d.told.Do(func() {
			d.options.Log.Warn(fmt.Sprintf("tensors of device %d are copied through host memory: %v "+
				"(GOROVOD_GPU=staged asks for that, and is silent)", device, err))
		})
	}
	return err == nil
}

// Refuse implements engine.Devices.
func (d *Devices) Refuse(owner collective.Owner) error {
	switch o := owner.(type) {
	case Refused:
		return o.Err
	case *Tensor:
		d.mu.Lock()
		defer d.mu.Unlock()
		if o.place == d.place {
			return nil
		}
	}
	return errors.New("it was submitted to an engine that has ended")
}

// Carrier implements engine.Devices.
func (d *Devices) Carrier(o engine.Opening, host collective.Carrier) engine.DeviceCarrier {
	l := &Lane{devices: d, id: o.ID, members: o.Members, host: host}
	for i, r := range o.Members {
		if r == d.options.Rank {
			l.rank = i
		}
	}
	d.mu.Lock()
	d.lanes[l] = true
	d.mu.Unlock()
	return l
}

// Share implements engine.Devices.
func (d *Devices) Share() { d.order.shared = true }

// Abort begins to end all communicators, also while an operation of NCCL hangs. It ends them at the same time, because
// NCCL may wait for the device when it ends one, and so for the operations of the others. Abort may be called on any
// goroutine, and more than once, and does not wait.
func (d *Devices) Abort(cause error) {
	d.mu.Lock()
	if d.lost == nil {
		close(d.ends)
	}
	d.lost = cause
	d.mu.Unlock()
	d.watch.doubt()
	d.mu.Lock()
	lanes := make([]*Lane, 0, len(d.lanes))
	for l := range d.lanes {
		lanes = append(lanes, l)
	}
	d.mu.Unlock()
	for _, l := range lanes {
		l.abort()
	}
}

// Close implements engine.Devices. It waits for memory that is being freed, unless the device is stuck.
func (d *Devices) Close() {
	d.mu.Lock()
	p := d.place
	d.mu.Unlock()
	if p != nil {
		p.closeOutputs()
		p.closeEvents()
		p.bin.close()
	}
}

// aborted is the cause of Abort, nil before.
func (d *Devices) aborted() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// latest returns the time until which lanes that close after an abort may wait for the device.
func (d *Devices) latest() time.Time {
	if d.ended.IsZero() {
		d.ended = time.Now()
	}
	return d.ended.Add(aftermath)
}

// forget removes a lane that has been closed.
func (d *Devices) forget(l *Lane) {
	d.order.leave(&l.turn)
	d.order.ended(l)
	d.mu.Lock()
	delete(d.lanes, l)
	d.mu.Unlock()
}

//go:build cgo && linux

package main

import (
	"cmp"
	"errors"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// callers are the streams on which the program makes tensors and reads results.
const callers = 3

// gpu is the program's own part of this rank's device. The engine has streams of its own there.
type gpu struct {
	context *cuda.Context
	streams [callers]cuda.Stream
	slots   [callers][]*slot // each belongs to one stream, as in PyTorch's caching allocator
	used    [callers]int     // number of these that operations of the burst use
	landing []unsafe.Pointer // pinned host memory for one input or result each, until they are compared
	landed  int
	busy    cuda.Address // keeps a real device busy; 0 on the stand-in
}

// A real device is busy for about busyTime while it clears busyBytes.
const (
	busyBytes = 64 << 20
	busyTime  = 20 * time.Microsecond
)

// kernel makes a stream copy memory, after some time.
func (g *gpu) kernel(to, from cuda.Address, size int, takes time.Duration, s cuda.Stream) error {
	if g.busy == 0 {
		return copySlowly(g.context, to, from, size, takes, s)
	}
	for range takes / busyTime {
		if err := g.context.Zero(g.busy, busyBytes, s); err != nil {
			return err
		}
	}
	return g.context.Copy(to, from, size, s)
}

// slot is an operation's memory.
type slot struct {
	source, input, output, copy cuda.Address
}

func (s *slot) all() []*cuda.Address { return []*cuda.Address{&s.source, &s.input, &s.output, &s.copy} }

func openGPU(ordinal int) (*gpu, error) {
	driver, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	standIn := findStandIn()
	if !standIn && (*during != "" || *faults != "" || *pack > 0) {
		return nil, errors.New("-during, -faults and -pack need the stand-in: set LD_LIBRARY_PATH to where it is")
	}
	g := &gpu{}
	if g.context, err = driver.Context(ordinal); err != nil {
		return nil, err
	}
	if !standIn {
		if g.busy, err = g.context.Alloc(busyBytes); err != nil {
			return nil, err
		}
	}
	for i := range callers {
		if g.streams[i], err = g.context.NewStream(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// slot takes an unused slot of a stream.
func (g *gpu) slot(stream int) (*slot, error) {
	pool, i := &g.slots[stream], g.used[stream]
	g.used[stream]++
	if i < len(*pool) {
		return (*pool)[i], nil
	}
	s := &slot{}
	*pool = append(*pool, s)
	for _, a := range s.all() {
		var err error
		if *a, err = g.context.Alloc(most); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// prepare allocates the memory that a chain needs, so that only calls of the engine meet faults.
func (g *gpu) prepare() error {
	for i := range callers {
		if _, err := g.slot(i); err != nil {
			return err
		}
	}
	for range 2 * *programs {
		if _, err := g.land(); err != nil {
			return err
		}
	}
	g.used, g.landed = [callers]int{}, 0
	return nil
}

// land takes unused pinned memory.
func (g *gpu) land() (unsafe.Pointer, error) {
	if g.landed == len(g.landing) {
		p, err := g.context.AllocHost(most)
		if err != nil {
			return nil, err
		}
		g.landing = append(g.landing, p)
	}
	g.landed++
	return g.landing[g.landed-1], nil
}

// produce makes the program's stream write an operation's input, after some time. Nobody waits.
func (g *gpu) produce(o *op, in []byte) (*slot, error) {
	s, err := g.slot(o.stream)
	if err != nil || len(in) == 0 {
		return s, err
	}
	host, err := g.land()
	if err != nil {
		return nil, err
	}
	copy(unsafe.Slice((*byte)(host), most), in)
	stream := g.streams[o.stream]
	if err := g.context.CopyFromHost(s.source, host, len(in), stream); err != nil {
		return nil, err
	}
	return s, g.kernel(s.input, s.source, len(in), o.takes, stream)
}

// fetch makes the program's stream copy a result on the device, and then to host memory. Nobody waits.
func (g *gpu) fetch(o *op, s *slot, from cuda.Address, bytes int) (unsafe.Pointer, error) {
	host, err := g.land()
	if err != nil || bytes == 0 {
		return host, err
	}
	stream := g.streams[o.reads]
	if err := g.kernel(s.copy, from, bytes, 0, stream); err != nil {
		return nil, err
	}
	return host, g.context.CopyToHost(host, s.copy, bytes, stream)
}

var errLate = errors.New("the device is not done in time")

// idle waits until the program's streams are done.
func (g *gpu) idle(limit time.Duration) error {
	began := time.Now()
	for _, stream := range g.streams {
		for {
			done, err := g.context.Idle(stream)
			if err != nil {
				return err
			}
			if done {
				break
			}
			if time.Since(began) > limit {
				return errLate
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	return nil
}

// close frees all streams and memory of the program.
func (g *gpu) close() (err error) {
	for i := range callers {
		for _, s := range g.slots[i] {
			for _, a := range s.all() {
				if *a != 0 {
					err = cmp.Or(err, g.context.Free(*a))
				}
			}
		}
		err = cmp.Or(err, g.context.FreeStream(g.streams[i]))
	}
	if g.busy != 0 {
		err = cmp.Or(err, g.context.Free(g.busy))
	}
	for _, p := range g.landing {
		err = cmp.Or(err, g.context.FreeHost(p))
	}
	return err
}

// at is device memory as the engine knows it.
func at(a cuda.Address, bytes int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&a)), bytes)
}

func addressOf(p []byte) cuda.Address {
	return cuda.Address(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
}

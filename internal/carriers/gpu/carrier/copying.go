package carrier

import (
	"unsafe"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/core/collective"
)

// copying is a set of copies that are in the stream.
type copying struct{ lane *Lane }

// Advance reports whether the copies have ended.
func (c *copying) Advance() (bool, error) {
	l := c.lane
	l.devices.watch.enter()
	defer l.devices.watch.leave()
	reached, err := l.place.context.Reached(l.done)
	if err != nil {
		return false, l.failed("a copy of a tensor", err)
	}
	if reached {
		l.moved++
	}
	return reached, nil
}

// Fetch implements engine.DeviceCarrier.
func (l *Lane) Fetch(parts []collective.Part, owners []collective.Owner) collective.Op {
	if err := l.fetch(parts, owners); err != nil {
		return failing{l.failed("copy a tensor to host memory", err)}
	}
	l.copying.lane = l
	return &l.copying
}

func (l *Lane) fetch(parts []collective.Part, owners []collective.Owner) error {
	l.devices.watch.enter()
	defer l.devices.watch.leave()
	if err := l.open(); err != nil {
		return err
	}
	c := l.place.context
	l.arena.reset(l.place)
	for i := range parts {
		p := &parts[i]
		var err error
		if p.Out, err = l.Reserve(p.Bytes); err != nil {
			return err
		}
		if err = c.Wait(l.stream, owners[i].(*Tensor).event); err != nil {
			return err
		}
		if p.Bytes > 0 {
			from := cuda.Address(addressOf(p.In))
			if err = c.CopyToHost(unsafe.Pointer(&p.Out[0]), from, p.Bytes, l.stream); err != nil {
				return err
			}
		}
	}
	return c.Record(l.done, l.stream)
}

// Store implements engine.DeviceCarrier.
func (l *Lane) Store(parts []collective.Part, _ []collective.Owner) collective.Op {
	if err := l.store(parts); err != nil {
		return failing{l.failed("copy a result to the device", err)}
	}
	l.copying.lane = l
	return &l.copying
}

func (l *Lane) store(parts []collective.Part) error {
	l.devices.watch.enter()
	defer l.devices.watch.leave()
	c := l.place.context
	for i := range parts {
		p := &parts[i]
		if p.Bytes == 0 {
			continue
		}
		to := cuda.Address(addressOf(p.Out))
		if err := c.CopyFromHost(to, unsafe.Pointer(&p.In[0]), p.Bytes, l.stream); err != nil {
			return err
		}
	}
	return c.Record(l.done, l.stream)
}

// Reserve implements engine.DeviceCarrier.
func (l *Lane) Reserve(bytes int) ([]byte, error) {
	l.devices.watch.enter()
	defer l.devices.watch.leave()
	return l.arena.take(l.place.context, bytes)
}

// arena gives out pinned host memory until it is reset. It grows to the size that one batch needs.
type arena struct {
	chunks [][]byte
	used   int // of the last one
	total  int // given out
}

// leastChunk is the least size of an allocation, in bytes.
const leastChunk = 1 << 20

// take gives out memory.
func (a *arena) take(c Context, bytes int) ([]byte, error) {
	n := len(a.chunks)
	if n == 0 || a.used+bytes > len(a.chunks[n-1]) {
		size := max(bytes, leastChunk)
		p, err := c.AllocHost(size)
		if err != nil {
			return nil, err
		}
		a.chunks, a.used = append(a.chunks, unsafe.Slice((*byte)(p), size)), 0
		n++
	}
	out := a.chunks[n-1][a.used : a.used+bytes : a.used+bytes]
	a.used = min(len(a.chunks[n-1]), a.used+aligned(bytes))
	a.total += aligned(bytes)
	return out, nil
}

// reset takes all memory back. Several chunks become one, so that the next batch of this size fits into one.
func (a *arena) reset(at *place) {
	total := a.total
	a.used, a.total = 0, 0
	if len(a.chunks) < 2 {
		return
	}
	a.free(at)
	if p, err := at.context.AllocHost(total); err == nil { // else the next take returns the error
		a.chunks = append(a.chunks, unsafe.Slice((*byte)(p), total))
	}
}

func (a *arena) free(at *place) {
	for _, p := range a.chunks {
		at.freeHost(unsafe.Pointer(&p[0]))
	}
	*a = arena{}
}

// buffer is device memory that grows.
type buffer struct {
	at   cuda.Address
	size int
}

// of returns the address of the buffer, which then has at least the given bytes. With zero, new memory is filled with
// zeros.
func (b *buffer) of(bytes int, l *Lane, zero bool) (uintptr, error) {
	if b.size >= bytes {
		return uintptr(b.at), nil
	}
	b.free(l.place)
	size := max(bytes, leastChunk)
	at, err := l.place.alloc(size)
	if err != nil {
		return 0, err
	}
	b.at, b.size = at, size
	if zero {
		err = l.place.context.Zero(at, size, l.stream)
	}
	return uintptr(at), err
}

func (b *buffer) free(at *place) {
	if b.size > 0 {
		at.free(b.at)
	}
	*b = buffer{}
}

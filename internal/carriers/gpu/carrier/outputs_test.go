package carrier

import (
	"testing"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// counted is a device that allocates, and says which events it has reached.
type counted struct {
	Context
	next    cuda.Address
	events  cuda.Event
	reached map[cuda.Event]bool
	freed   chan cuda.Address
}

func (c *counted) Alloc(size int) (cuda.Address, error) {
	c.next += 1 << 30
	return c.next, nil
}
func (c *counted) Free(a cuda.Address) error                    { c.freed <- a; return nil }
func (c *counted) NewEvent() (cuda.Event, error)                { c.events++; return c.events, nil }
func (c *counted) FreeEvent(cuda.Event) error                   { return nil }
func (c *counted) Record(e cuda.Event, _ cuda.Stream) error     { c.reached[e] = false; return nil }
func (c *counted) Reached(e cuda.Event) (reached bool, _ error) { return c.reached[e], nil }

// A block is at most a quarter larger than its output, but for the smallest.
func TestBlockSize(t *testing.T) {
	for bytes := range 1 << 16 {
		size := blockSize(bytes)
		if size < bytes || size < smallestKept || size > max(smallestKept, bytes+bytes/4) || blockSize(size) != size {
			t.Fatalf("%d bytes get a block of %d", bytes, size)
		}
	}
	if size := blockSize(33 << 20); size != 40<<20 {
		t.Errorf("33 MiB get %d bytes", size)
	}
}

// Empty outputs take no memory, and there is none to free.
func TestEmptyOutput(t *testing.T) {
	tensor := &Tensor{} // without a device
	out, err := tensor.Alloc(0)
	if err != nil || out == nil || len(out) > 0 {
		t.Error(out, err)
	}
	tensor.Free(out)
}

// Memory that is given back becomes an output of about its size, once its stream has done its work.
func TestOutputs(t *testing.T) {
	c := &counted{reached: make(map[cuda.Event]bool), freed: make(chan cuda.Address, 100)}
	p := &place{context: c, watch: &watch{devices: New(nil, Options{})}}
	take := func(bytes int) cuda.Address {
		a, err := p.take(bytes)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := take(1000)
	p.giveBack(first, 1000, 0)
	if second := take(1000); second == first {
		t.Error("memory is an output while its stream is at work with it")
	}
	c.reached[1] = true
	if other := take(2000); other == first {
		t.Error("memory is a larger output")
	}
	if again := take(900); again != first {
		t.Error("memory that nobody uses is not used again")
	}
	p.giveBack(take(largestKept+1), largestKept+1, 0)
	<-c.freed
	for range mostKept/largestKept + 1 {
		p.giveBack(take(largestKept), largestKept, 0)
	}
	<-c.freed // the oldest one
	if p.closeOutputs(); p.outputs.bytes != 0 {
		t.Errorf("%d bytes are kept at the end", p.outputs.bytes)
	}
	for range mostKept / largestKept {
		<-c.freed
	}
	p.giveBack(first, 1000, 0)
	if at := <-c.freed; at != first {
		t.Errorf("%v is freed, not %v", at, first)
	}
}

package carrier

import (
	"math/bits"
	"sync"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// outputs keeps memory that the program has given back, for later outputs. To free it would cost the program time: CUDA
// waits until the whole device is idle, and meanwhile it lets no thread of the process start a kernel (measured on an
// H200).
//
//	taken by the driver ─▶ an operation's output ─▶ given back by the program, after work of its stream ─┐
//	   ▲                                                                                                 │
//	   └──────────────────────── kept, until the stream has done that work ◀─────────────────────────────┘
type outputs struct {
	mu     sync.Mutex
	blocks []block // the oldest first
	bytes  int     // of all blocks
	closed bool
}

// block is kept memory.
type block struct {
	at   cuda.Address
	size int
	used cuda.Event // reached when nobody uses the memory any more
}

const (
	mostKept     = 256 << 20 // bytes of all blocks: the program cannot have them
	largestKept  = 64 << 20
	smallestKept = 512
)

// blockSize returns the size of the block for an output of the given bytes, so that outputs of similar sizes can have
// the same block. There are four sizes up to each power of 2, since more than a quarter on top may be more than the
// device has. A large output has no block.
func blockSize(bytes int) int {
	if bytes > largestKept {
		return bytes
	}
	bytes = max(smallestKept, bytes)
	quarter := 1 << bits.Len(uint(bytes-1)) / 8
	return (bytes + quarter - 1) / quarter * quarter
}

// take returns memory for an output: a block that nobody uses, or new memory.
func (p *place) take(bytes int) (cuda.Address, error) {
	size := blockSize(bytes)
	b, err := p.outputs.unused(size, p.context)
	if err != nil {
		return 0, err
	}
	if b.at == 0 {
		return p.alloc(size)
	}
	p.putEvent(b.used)
	return b.at, nil
}

// unused takes out a block of that size whose event the device has reached. It returns the zero block if there is none.
func (o *outputs) unused(size int, c Context) (block, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, b := range o.blocks {
		if b.size != size {
			continue
		}
		reached, err := c.Reached(b.used)
		if err != nil {
			return block{}, err
		}
		if reached {
			o.blocks = append(o.blocks[:i], o.blocks[i+1:]...)
			o.bytes -= size
			return b, nil
		}
	}
	return block{}, nil
}

// giveBack keeps the memory of an output of so many bytes, which nobody uses once a stream has done its present work.
// The caller does not wait.
func (p *place) giveBack(a cuda.Address, bytes int, s cuda.Stream) {
	b := block{at: a, size: blockSize(bytes)}
	var err error
	if b.size > largestKept {
		p.free(a)
		return
	}
	thread := p.watch.programEnters()
	if b.used, err = p.events.take(p.context); err == nil {
		err = p.context.Record(b.used, s)
	}
	p.watch.programLeaves(thread)
	o := &p.outputs
	o.mu.Lock()
	if err != nil || o.closed {
		o.mu.Unlock()
		p.drop(b)
		return
	}
	o.blocks = append(o.blocks, b)
	o.bytes += b.size
	var old []block
	for o.bytes > mostKept {
		old = append(old, o.blocks[0])
		o.bytes -= o.blocks[0].size
		o.blocks = append(o.blocks[:0], o.blocks[1:]...)
	}
	o.mu.Unlock()
	for _, b := range old {
		p.drop(b)
	}
}

// drop frees a block, which waits for the device and so for its event.
func (p *place) drop(b block) {
	if b.used != 0 {
		p.putEvent(b.used)
	}
	p.free(b.at)
}

// dropOutputs frees all blocks.
func (p *place) dropOutputs() {
	p.outputs.mu.Lock()
	blocks := p.outputs.blocks
	p.outputs.blocks, p.outputs.bytes = nil, 0
	p.outputs.mu.Unlock()
	for _, b := range blocks {
		p.drop(b)
	}
}

// closeOutputs frees all blocks. Memory that is given back later is freed at once.
func (p *place) closeOutputs() {
	p.outputs.mu.Lock()
	p.outputs.closed = true
	p.outputs.mu.Unlock()
	p.dropOutputs()
}

// GiveBack frees the memory of an output that Tensor.Alloc has made, of the given bytes, after the present work of a
// stream. The memory may become that of a later output. GiveBack does not wait. It reports whether the device is the
// one of this process, or the output is empty.
func (d *Devices) GiveBack(device int, a cuda.Address, bytes int, s cuda.Stream) bool {
	if bytes == 0 {
		return true
	}
	d.mu.Lock()
	p := d.place
	d.mu.Unlock()
	if p == nil || p.device != device {
		return false
	}
	p.giveBack(a, bytes, s)
	return true
}

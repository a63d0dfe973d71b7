package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/cachesize"
)

// The modes of a task: how its tensors are reduced, or what of the machine is measured. Only the Go ranks do machine
// tasks.
const (
	modeAllreduce = "allreduce" // one blocking call
	modeAsync     = "async"     // submits all tensors, then waits for them
	modeGrouped   = "grouped"   // the same, submitted by one call
	modeSubmit    = "submit"    // the same as async, but only the submitting calls are timed

	modeAdd  = "add"  // each rank sums in place; the ranks share nothing
	modeTCP  = "tcp"  // rank 0 to rank 1 over loopback
	modeWake = "wake" // rank 0 wakes rank 1 by a futex
)

// task is one piece of work, which contenders do in turn.
type task struct {
	name  string // of the table's row; for allreduce the size says it
	mode  string
	sizes []int // floats of each tensor; bytes for machine tasks
	inner int   // how often it is done between two looks at the clock; for submit, the number of tensors
}

// bytes is how much one rank contributes.
func (t *task) bytes() int {
	n := 0
	for _, s := range t.sizes {
		n += s
	}
	if t.machine() {
		return n
	}
	return 4 * n
}

// machine reports whether the task measures the machine, not an allreduce.
func (t *task) machine() bool { return t.mode == modeAdd || t.mode == modeTCP || t.mode == modeWake }

// order is the line that tells ranks to do the task. Equal sizes mean the same tensors.
func (t *task) order(reps int) string {
	sizes := make([]string, len(t.sizes))
	for i, s := range t.sizes {
		sizes[i] = strconv.Itoa(s)
	}
	return fmt.Sprintf("run %s %s %d %d\n", t.mode, strings.Join(sizes, ","), reps, t.inner)
}

// The names of the rows that are not plain allreduces.
const (
	TaskAllreduce = "allreduce"
	nameMany      = "1000 floats"
	nameGrouped   = "1000 floats, grouped"
	nameSubmit    = "submitting one tensor"
	nameResNet    = "ResNet-50 gradients"
	nameBERT      = "BERT-large gradients"
)

// submitted is how many tensors are submitted at a time to measure the cost of one. It is small enough that none has to
// wait for room.
const submitted = 16

// mebibyte is the size for which Open MPI's time shows the machine's mode.
const mebibyte = 1 << 20

// tasks are all tasks: small work first, and the machine before everything.
func (o *options) tasks() []task {
	var all []task
	if o.tiny {
		all = append(all, task{modeAdd, modeAdd, []int{1 << 20}, 1})
	} else {
		all = append(all, task{modeAdd, modeAdd, []int{addBytes(o.NumProc)}, 1})
	}
	if o.NumProc > 1 {
		all = append(all, task{modeWake, modeWake, []int{4}, 1}, task{modeTCP, modeTCP, []int{o.tcpBytes()}, 1})
	}
	for _, bytes := range o.sizes() {
		all = append(all, task{TaskAllreduce, modeAllreduce, []int{bytes / 4}, innerFor(bytes)})
	}
	ones := make([]int, 1000)
	for i := range ones {
		ones[i] = 1
	}
	all = append(all, task{nameMany, modeAsync, ones, 1}, task{nameGrouped, modeGrouped, ones, 1},
		task{nameSubmit, modeSubmit, ones[:submitted], submitted})
	if !o.tiny {
		all = append(all, task{nameResNet, modeAsync, resNet50(), 1})
	}
	if o.BERT {
		all = append(all, task{nameBERT, modeAsync, bertLarge(), 1})
	}
	return all
}

// sizes are the tensors' sizes in bytes. 1 MiB is always among them.
func (o *options) sizes() []int {
	sizes := []int{4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20,
		64 << 20, 256 << 20, 1 << 30, 4 << 30}
	switch {
	case o.tiny:
		return []int{4, 1 << 12, mebibyte}
	case o.Quick:
		sizes = []int{4, 4 << 10, 64 << 10, mebibyte, 16 << 20, 64 << 20}
	}
	for i, s := range sizes {
		if s > o.MaxSize<<20 {
			return sizes[:i]
		}
	}
	return sizes
}

func (o *options) tcpBytes() int {
	if o.tiny {
		return 1 << 20
	}
	return 64 << 20
}

// innerFor makes a repetition long compared with reading the clock and with the end of a barrier.
func innerFor(bytes int) int {
	switch {
	case bytes <= 4<<10:
		return 32
	case bytes <= 64<<10:
		return 8
	case bytes <= 256<<10:
		return 2
	}
	return 1
}

// addBytes is the length of each of the two arrays that a rank adds: together, those of all ranks are at least four
// times the last cache.
func addBytes(np int) int {
	return min(max((2*cachesize.Last()/np+mebibyte-1)&^(mebibyte-1), 64<<20), 256<<20)
}

// resNet50 are the lengths of ResNet-50's parameters, last layer first: backward finishes their gradients in this
// order.
func resNet50() []int {
	var sizes []int
	// and its batch norm's two
	conv := func(in, out, kernel int) { sizes = append(sizes, in*out*kernel*kernel, out, out) }
	conv(3, 64, 7)
	in := 64
	for stage, blocks := range []int{3, 4, 6, 3} {
		width := 64 << stage
		for block := range blocks {
			conv(in, width, 1)
			conv(width, width, 3)
			conv(width, 4*width, 1)
			if block == 0 {
				conv(in, 4*width, 1)
			}
			in = 4 * width
		}
	}
	sizes = append(sizes, 2048*1000, 1000)
	slices.Reverse(sizes)
	return sizes
}

// bertLarge are the lengths of the parameters of BERT-large (uncased) with the heads of its pre-training, last layer
// first. The decoder shares its matrix with the embedding of words.
func bertLarge() []int {
	const layers, hidden, inner, words, positions, kinds = 24, 1024, 4096, 30522, 512, 2
	var sizes []int
	linear := func(in, out int) { sizes = append(sizes, in*out, out) }
	norm := func() { sizes = append(sizes, hidden, hidden) }
	sizes = append(sizes, words*hidden, positions*hidden, kinds*hidden)
	norm()
	for range layers {
		for range 4 { // query, key, value, output
			linear(hidden, hidden)
		}
		norm()
		linear(hidden, inner)
		linear(inner, hidden)
		norm()
	}
	linear(hidden, hidden)       // pooler
	sizes = append(sizes, words) // the decoder's bias
	linear(hidden, hidden)       // transform of the masked words' head
	norm()
	linear(hidden, 2) // next sentence
	slices.Reverse(sizes)
	return sizes
}

package engine

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
)

// sparse carries out Pulls and Pushes. Those that stand in one batch are one exchange, whatever their number:
//
//	startKeys   each member packs a message for each owner     AlltoallCounts  the messages' sizes
//	exchange    it knows how much it gets                      Alltoall        the messages
//	serve       it does what the others ask, as an Op
//	reply       of a Pull, the rows go back                    Alltoall        the rows
//	unpack      of a Pull of several tables
//
// A message is, for each part of the batch, a demand, then for each part its keys and, of a Push, its gradients. All of
// it stands at multiples of 8 bytes. With one member nothing is packed or sent.
//
// A Push adds gradients of equal keys in the order of the members: that of the messages.
type sparse struct {
	lane   *lane
	push   bool
	tables []*table.Table // of the parts
	dims   []int          // of the tables
	asked  []request      // in the order of the members, and of the parts for each
	rates  []float32      // of a Push, for each part
	raters []int          // the first members that have one
	placed []int          // of a Pull of several tables: the bytes in each part's output

	update  table.Update
	current int  // the first of asked that has not been served in full
	served  int  // how many of its keys have been served
	begun   bool // the update of its table; once all gradients are added, the table applies it

	owners             *slots.Map
	messages, arrived  []byte // for all members, in out, and from them, in in
	out, in            collective.Buffer
	rows, back         collective.Buffer // of a Pull: what this member serves, and what it gets
	serving, returning []byte            // in rows and back
}

// demand begins a part of a message.
type demand struct {
	keys int64
	what uint64 // see the flags; of a Push the bits of the learning rate are the lower half
}

const (
	demandBytes  = int(unsafe.Sizeof(demand{}))
	demandTrains = 1 << 32 // of a Pull
	demandAsks   = 1 << 33 // the member takes part: it has not joined
)

// request is what one member asks of this one, for one part.
type request struct {
	part      int
	trains    bool
	keys      []int64
	gradients []float32
	rows      []float32 // where the rows go
}

// serveKeys is how many keys are served before the driver looks after other lanes.
const serveKeys = 4096

// startKeys begins a batch of Pulls or Pushes.
func (l *lane) startKeys(b *negotiate.Batch) {
	if l.sparse == nil {
		l.sparse = &sparse{lane: l, owners: slots.Assign(len(l.members))}
	}
	s, x := l.sparse, &l.current
	s.push = b.Type == operation.Push
	s.tables, s.dims, s.asked, s.rates, s.raters = s.tables[:0], s.dims[:0], s.asked[:0], s.rates[:0], s.raters[:0]
	s.current, s.served, s.begun = 0, 0, false
	for i := range x.parts {
		p := &x.parts[i]
		t := l.tableOf(int(p.resp.Root))
		if t == nil || len(p.resp.Shape) != 2 || int64(t.Options().Dim) != p.resp.Shape[1] {
			l.engine.net.Abort(fmt.Errorf("protocol error: %s %q is about table %d, rows of shape %v, which %s has not",
				p.resp.Type.Describe().Name, p.resp.Name, p.resp.Root, p.resp.Shape,
				l.engine.opts.Describe(l.engine.opts.Rank)))
			return
		}
		s.tables, s.dims = append(s.tables, t), append(s.dims, t.Options().Dim)
		s.rates, s.raters = append(s.rates, 0), append(s.raters, -1)
		if !s.push {
			t.BeginPull()
		}
	}
	l.traceMove(x.parts)
	if len(l.members) == 1 {
		s.alone()
		return
	}
	if !s.pack() {
		return
	}
	x.then = exchangeKeys
	l.carry(collective.Arguments{Kind: collective.AlltoallCounts, Counts: x.counts, Received: x.received})
}

// alone serves the only member where its memory is.
func (s *sparse) alone() {
	for i := range s.lane.current.parts {
		if en := s.lane.current.parts[i].entry; en != nil {
			s.asked = append(s.asked, request{part: i, trains: !en.op.Looks, keys: en.op.Keys,
				gradients: view[float32](en.op.In), rows: view[float32](en.op.Out)})
			s.rates[i] = en.op.Rate
			message, rows := s.sizes(i, int64(len(en.op.Keys)))
			if s.lane.current.parts[i].bytes = int(message); !s.push {
				s.lane.current.parts[i].bytes += int(rows)
			}
		}
	}
	s.serve()
}

// sizes returns how many bytes n keys of a part take in a message, and how many their rows.
func (s *sparse) sizes(part int, n int64) (message, rows int64) {
	message, rows = 8*n, 4*n*int64(s.dims[part])
	if s.push {
		message += (rows + 7) &^ 7
	}
	return message, rows
}

// pack writes the messages for all members side by side, and sets execution.counts to their sizes. It returns false
// after an abort.
func (s *sparse) pack() bool {
	l := s.lane
	x := &l.current
	x.counts, x.received = grown(x.counts, len(l.members)), grown(x.received, len(l.members))
	total := int64(0)
	for m := range x.counts {
		x.counts[m] = int64(len(x.parts) * demandBytes)
		for i := range x.parts {
			if en := x.parts[i].entry; en != nil {
				n, _ := s.sizes(i, int64(en.sendRows[m]))
				x.counts[m] += n
			}
		}
		total += x.counts[m]
	}
	buf := l.growIn(&s.out, int(total))
	if buf == nil {
		return false
	}
	s.messages = buf
	for i := range x.parts {
		x.parts[i].bytes = 0
	}
	for m := range x.counts {
		demands := view[demand](buf[:len(x.parts)*demandBytes])
		buf = buf[len(x.parts)*demandBytes:]
		for i := range x.parts {
			demands[i] = demand{}
			if en := x.parts[i].entry; en != nil {
				buf = s.packPart(buf, &x.parts[i], i, m, &demands[i])
			}
		}
	}
	return true
}

// packPart writes what a part has for a member, and returns the rest of buf.
func (s *sparse) packPart(buf []byte, p *part, i, m int, d *demand) []byte {
	en := p.entry
	begin := int64(0)
	for _, n := range en.sendRows[:m] {
		begin += int64(n)
	}
	n := int64(en.sendRows[m])
	size, rows := s.sizes(i, n)
	d.keys, d.what = n, demandAsks
	copy(view[int64](buf[:8*n]), en.op.Keys[begin:begin+n])
	switch {
	case s.push:
		d.what |= uint64(math.Float32bits(en.op.Rate))
		copy(buf[8*n:], en.op.In[begin*int64(4*s.dims[i]):][:rows])
	case !en.op.Looks:
		d.what |= demandTrains
	}
	p.bytes += int(size)
	return buf[size:]
}

// exchangeKeys sends the messages, whose sizes have come.
func exchangeKeys(l *lane) {
	s, x := l.sparse, &l.current
	total := int64(0)
	for m, n := range x.received {
		if n < int64(len(x.parts)*demandBytes) || n > hostMemory()-total {
			s.violated(m, fmt.Sprintf("a message of %d bytes, and this host has %d bytes of memory", n, hostMemory()))
			return
		}
		total += n
	}
	in := l.growIn(&s.in, int(total))
	if in == nil {
		return
	}
	x.then = keysCame
	s.arrived = in
	l.carry(collective.Arguments{Kind: collective.Alltoall, In: s.messages, Counts: x.counts, Out: in,
		Received: x.received})
}

// keysCame reads the messages of all members, and begins to do what they ask.
func keysCame(l *lane) {
	s, x := l.sparse, &l.current
	in := s.arrived
	for m, size := range x.received {
		if what := s.read(in[:size], m); what != "" {
			s.violated(m, what)
			return
		}
		in = in[size:]
	}
	if s.push {
		slices.SortStableFunc(s.asked, func(a, b request) int { return a.part - b.part })
		s.serve()
		return
	}
	total := 0
	for i := range s.asked {
		total += len(s.asked[i].keys) * s.dims[s.asked[i].part]
	}
	if s.serving = l.growIn(&s.rows, 4*total); s.serving == nil {
		return
	}
	rows := view[float32](s.serving)
	for i := range s.asked {
		r := &s.asked[i]
		n := len(r.keys) * s.dims[r.part]
		r.rows, rows = rows[:n], rows[n:]
	}
	s.serve()
}

// read appends what member m asks to asked. It returns what is wrong with the message, if something is.
func (s *sparse) read(p []byte, m int) string {
	parts := s.lane.current.parts
	demands := view[demand](p[:len(parts)*demandBytes]) // exchangeKeys has checked that there are as many
	p = p[len(parts)*demandBytes:]
	for i := range demands {
		d := &demands[i]
		if d.keys < 0 || d.keys > int64(len(p)/8) || d.keys > 0 && d.what&demandAsks == 0 {
			return fmt.Sprintf("%d keys in %d bytes", d.keys, len(p))
		}
		size, rows := s.sizes(i, d.keys)
		if size > int64(len(p)) {
			return fmt.Sprintf("%d keys in %d bytes", d.keys, len(p))
		}
		if s.push && d.what&demandAsks != 0 {
			s.compareRates(i, m, math.Float32frombits(uint32(d.what)))
		}
		r := request{part: i, trains: d.what&demandTrains != 0, keys: view[int64](p[:8*d.keys])}
		if s.push {
			r.gradients = view[float32](p[8*d.keys:][:rows])
		}
		s.asked = append(s.asked, r)
		p = p[size:]
	}
	if len(p) > 0 {
		return fmt.Sprintf("%d bytes that belong to nothing", len(p))
	}
	return ""
}

// compareRates fails a Push for which two members have different learning rates. All members see the rates of all, so
// it fails on all.
func (s *sparse) compareRates(i, m int, rate float32) {
	l := s.lane
	p := &l.current.parts[i]
	if s.raters[i] < 0 {
		s.raters[i], s.rates[i] = m, rate
	}
	if rate != s.rates[i] && p.err == nil {
		p.err = errorf(PreconditionError, "Push %q: Mismatched learning rates: rank %d has %v, rank %d has %v.",
			p.resp.Name, l.members[s.raters[i]], s.rates[i], l.members[m], rate)
	}
}

// serve begins to do what is asked.
func (s *sparse) serve() {
	x := &s.lane.current
	x.then = keysServed
	x.op, x.by, x.polled = s, s.lane.run, false
}

// Advance does some of what is asked.
func (s *sparse) Advance() (done bool, err error) {
	for budget := serveKeys; s.current < len(s.asked); {
		if budget <= 0 {
			return false, nil
		}
		r := &s.asked[s.current]
		n := min(len(r.keys)-s.served, budget)
		budget -= n + 1
		switch last := s.current+1 == len(s.asked) || s.asked[s.current+1].part != r.part; {
		case s.lane.current.parts[r.part].err != nil:
			s.next()
			continue
		case s.served < len(r.keys):
			if err := s.some(r, n); err != nil {
				return false, fmt.Errorf("%s: %w", s.lane.engine.opts.Describe(s.lane.engine.opts.Rank), err)
			}
			s.served += n
			if s.served < len(r.keys) || s.push && last {
				continue
			}
		case s.push && last:
			if !s.begun { // nobody has gradients: the table counts an update all the same
				s.update.Begin(s.tables[r.part])
				s.begun = true
			}
			applied, err := s.update.Apply(s.rates[r.part], budget)
			if err != nil {
				return false, fmt.Errorf("%s: %w", s.lane.engine.opts.Describe(s.lane.engine.opts.Rank), err)
			}
			if !applied {
				return false, nil
			}
			s.begun = false
		}
		s.next()
	}
	return true, nil
}

// next goes on to the next request.
func (s *sparse) next() { s.current, s.served = s.current+1, 0 }

// some does what a request asks for the next n of its keys.
func (s *sparse) some(r *request, n int) error {
	t, dim := s.tables[r.part], s.dims[r.part]
	keys := r.keys[s.served:][:n]
	if s.owners.Size() > 1 {
		for _, key := range keys {
			if s.owners.OwnerOf(slots.Hash(key)) != s.lane.rank {
				return fmt.Errorf("protocol error: table %q: a rank asks for key %d, which another rank owns",
					t.Options().Name, key)
			}
		}
	}
	if !s.push {
		return t.Pull(keys, r.rows[s.served*dim:][:n*dim], r.trains)
	}
	if !s.begun {
		s.update.Begin(t)
		s.begun = true
	}
	return s.update.Add(keys, r.gradients[s.served*dim:][:n*dim])
}

// keysServed sends the rows of a Pull back.
func keysServed(l *lane) {
	s, x := l.sparse, &l.current
	if s.push || len(l.members) == 1 {
		clear(s.asked) // so that it does not keep a caller's data alive
		l.finishCurrent()
		return
	}
	x.counts, x.received = grown(x.counts, len(l.members)), grown(x.received, len(l.members))
	clear(x.counts)
	for i := range s.asked {
		x.counts[i/len(x.parts)] += int64(4 * len(s.asked[i].rows))
	}
	total := int64(0)
	for m := range x.received {
		x.received[m] = 0
		for i := range x.parts {
			if en := x.parts[i].entry; en != nil {
				_, rows := s.sizes(i, int64(en.sendRows[m]))
				x.received[m] += rows
			}
		}
		total += x.received[m]
	}
	for i := range s.asked {
		p := &x.parts[s.asked[i].part]
		p.bytes += 4 * len(s.asked[i].rows)
	}
	if len(x.parts) == 1 && x.parts[0].entry != nil {
		s.returning = x.parts[0].entry.op.Out
	} else {
		if s.returning = l.growIn(&s.back, int(total)); s.returning == nil {
			return
		}
		x.then = rowsCame
	}
	l.carry(collective.Arguments{Kind: collective.Alltoall, In: s.serving, Counts: x.counts, Out: s.returning,
		Received: x.received})
}

// rowsCame copies the rows of several tables to their places.
func rowsCame(l *lane) {
	s, x := l.sparse, &l.current
	from := s.returning
	s.placed = slices.Grow(s.placed[:0], len(x.parts))[:len(x.parts)]
	clear(s.placed)
	for m := range l.members {
		for i := range x.parts {
			en := x.parts[i].entry
			if en == nil {
				continue
			}
			_, n := s.sizes(i, int64(en.sendRows[m]))
			copy(en.op.Out[s.placed[i]:], from[:n])
			s.placed[i], from = s.placed[i]+int(n), from[n:]
		}
	}
	l.finishCurrent()
}

// free frees the memory. Nothing touches it any more.
func (s *sparse) free() {
	for _, b := range []*collective.Buffer{&s.out, &s.in, &s.rows, &s.back} {
		b.Free()
	}
}

// view is memory as numbers.
func view[T any](p []byte) []T {
	if len(p) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), len(p)/int(unsafe.Sizeof(one)))
}

// violated aborts, because a member has sent something that no member sends.
func (s *sparse) violated(m int, what string) {
	l := s.lane
	p := &l.current.parts[0]
	l.engine.net.Abort(fmt.Errorf("protocol error: %s %q: %s sends %s", p.resp.Type.Describe().Name, p.resp.Name,
		l.engine.opts.Describe(l.members[m]), what))
}

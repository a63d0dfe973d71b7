package collective

import (
	"encoding/binary"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"iter"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// allreduceSharedSingle is the allreduce of large data between members that copy one another's memory. Each member
// writes the addresses of its parts into its staging buffer. Then each reduces its share of the layout, block by block:
// it copies the block from all others' inputs, reduces these and its own input in the order of the ranks to its output,
// and copies the result to all others' outputs.
//
// Steps: two synchronisations. Bytes: each member reads n and writes n of the members' memory. No algorithm moves fewer
// bytes beyond the cache, and no data passes from core to core. Data of other members passes through scratch memory
// that stays in this member's second-level cache. Each page costs the kernel 0.1 µs. Chosen from singleBytes on, if all
// members can copy all of the memory, and member 0 has found it faster than allreduceSharedPipelined: see copyTrial.
//
// It is also the reducescatter of large data, without the copies to the others' outputs, and the allgather, in which
// each member copies its own input to all outputs. Then a member's share is the region of its pieces: see dealt.
//
// Inspection, of an allreduce only: a member's input is in the cache of the members that copy from it, so these look at
// it, block by block:
//
//	reduce    each member stops at the first of its blocks in which some input is not sound. It writes the place into
//	          its table. No output has changed from there to the end of its share.
//	inspect   if some member has stopped, each looks at its own input in the places that are left. It knows its
//	          elements, which are still there, and tells its Inspector.
//	go on     when all have done so, they reduce what is left without an inspection.
type allreduceSharedSingle struct {
	lane *Lane
	kind Kind   // Allreduce, Reducescatter or Allgather
	all  layout // the whole layout, the same on all members
	todo layout // of which this member makes its share: all, or the region of its pieces
	// told are the parts whose addresses the members exchange, as many as todo has. Part i of todo begins skips[i]
	// bytes behind the address of told[i]; nil: at the address.
	told  []Part
	skips []int
	trial *copyTrial
	chunk uint64
	step  int
	stuck bool // the network is aborted, or about to be
	began time.Time
	way   copyWay
	then  Op // the pipelined algorithm, in place of this one

	at, end     int // the next block of this member's share, and where the share ends
	inspects    bool
	unsound     bool   // an input of the next block is not sound
	halted      bool   // this member has stopped before that block
	last        uint64 // the chunk whose counters are in use: chunk, or the next one after members have stopped
	part        int    // the first part that may reach into the next block
	block       int    // bytes
	own, theirs []transport.Span
}

const (
	// singleBytes is the least length for which the members exchange the addresses of their parts.
	singleBytes = 128 << 10
	// crowdedBytes is the same for ranks that share cores. For them the exchange costs turns of the processor.
	crowdedBytes = 1 << 20
	// singlePart is the least mean length of a part. Each part costs the kernel a page or two.
	singlePart = 16 << 10
	// singleScratch is about the size of all members' blocks together, which stay in a second-level cache.
	singleScratch = 512 << 10
	// singleSpans is the most spans that the kernel takes in one call.
	singleSpans = 1024
)

// maySingleCopy reports that the members should exchange the addresses of their parts. The answer is the same on all
// members.
func (l *Lane) maySingleCopy(n, parts int) bool {
	if l.single == nil || l.cannotCopy || n < singleBytes || n < crowdedBytes && l.single.Crowded() {
		return false
	}
	return n/parts >= singlePart && tableBytes(parts) <= l.shared.ChunkBytes()
}

// A member's table in its staging buffer says whether the member can copy, which way it wants, and for each part the
// addresses of its input and output; 0 if it has none.
const (
	tableVerdict = 8 * iota
	tableWay
	tableHalt // where the member has stopped before a block, and otherwise the end of its share
	tableParts
)

// The fields of a part.
const (
	tableIn  = 0
	tableOut = 8
)

func tableBytes(parts int) int { return tableParts + 16*parts }

// The verdicts.
const (
	copiesAll  = 1 + iota // this member can copy from the others, and they can copy these parts
	notNow                // the others cannot copy all of these parts
	copiesNone            // this member cannot copy from the others, now or later
)

func (a *allreduceSharedSingle) start(l *Lane, s layout) Op {
	*a = allreduceSharedSingle{lane: l, kind: Allreduce, all: s, todo: s, told: s.parts, trial: &l.copyTrial,
		chunk: l.chunks(1), own: a.own[:0], theirs: a.theirs[:0], skips: a.skips[:0], inspects: l.inspect != nil}
	a.last = a.chunk
	return a
}

// startDealt begins a reducescatter or an allgather of parts, whose pieces are laid out in s.
func (a *allreduceSharedSingle) startDealt(l *Lane, kind Kind, s layout, parts []Part, t *copyTrial) Op {
	*a = allreduceSharedSingle{lane: l, kind: kind, all: s, todo: l.region(s), told: parts, trial: t,
		chunk: l.chunks(1), own: a.own[:0], theirs: a.theirs[:0], skips: a.skips[:0]}
	a.last = a.chunk
	for i := range parts {
		skip := 0
		for m := range l.rank {
			skip += s.parts[m*len(parts)+i].Bytes
		}
		a.skips = append(a.skips, skip)
	}
	return a
}

func (a *allreduceSharedSingle) Advance() (bool, error) {
	l := a.lane
	if a.then != nil {
		done, err := a.then.Advance()
		if done {
			a.timed()
		}
		return done, err
	}
	switch a.step {
	case 0:
		if !l.free(a.chunk) {
			return false, nil
		}
		a.tell()
		l.publish(transport.In, a.chunk+1)
		a.step++
		fallthrough
	case 1:
		if !l.allPast(transport.In, a.chunk+1) {
			return false, nil
		}
		if !a.agreed() {
			l.publish(transport.Mid, a.chunk+1)
			l.publish(transport.Out, a.chunk+1)
			a.then = a.staged()
			return a.Advance()
		}
		a.deal()
		a.step++
		fallthrough
	case 2:
		for a.at < a.end && !a.stuck && !a.halted {
			a.stuck = !a.reduceBlock()
		}
		if a.stuck {
			return false, nil
		}
		binary.NativeEndian.PutUint64(l.shared.Buffer(l.rank, a.chunk)[tableHalt:], uint64(a.at))
		l.publish(transport.Mid, a.chunk+1)
		a.step++
		fallthrough
	case 3:
		if !l.allPast(transport.Mid, a.chunk+1) {
			return false, nil
		}
		if !a.inspects || !a.anyHalted() {
			break
		}
		if err := a.inspectRest(); err != nil {
			return false, err
		}
		a.inspects, a.halted = false, false
		a.last = l.chunks(1)
		l.publish(transport.In, a.last+1)
		a.step++
		fallthrough
	case 4:
		if !l.allPast(transport.In, a.last+1) {
			return false, nil
		}
		for a.at < a.end && !a.stuck {
			a.stuck = !a.reduceBlock()
		}
		if a.stuck {
			return false, nil
		}
		l.publish(transport.Mid, a.last+1)
		a.step++
		fallthrough
	case 5:
		if !l.allPast(transport.Mid, a.last+1) {
			return false, nil
		}
	}
	l.publish(transport.Out, a.last+1)
	a.timed()
	l.end()
	return true, nil
}

// staged begins the same operation through staging buffers.
func (a *allreduceSharedSingle) staged() Op {
	switch l := a.lane; a.kind {
	case Reducescatter:
		return l.reducescatterShared.start(l, a.all)
	case Allgather:
		return l.allgatherShared.start(l, a.all)
	default:
		return l.allreducePipelined.start(l, a.all)
	}
}

func addressOf(p []byte) uintptr {
	if len(p) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&p[0]))
}

// tell fills this member's table.
func (a *allreduceSharedSingle) tell() {
	l := a.lane
	table := l.shared.Buffer(l.rank, a.chunk)[:tableBytes(len(a.told))]
	a.own = a.own[:0]
	for i, p := range a.told {
		in, out := addressOf(p.In), addressOf(p.Out)
		switch a.kind { // others do not touch the rest
		case Reducescatter:
			out = 0
		case Allgather:
			in = 0
		}
		entry := table[tableParts+16*i:]
		binary.NativeEndian.PutUint64(entry[tableIn:], uint64(in))
		binary.NativeEndian.PutUint64(entry[tableOut:], uint64(out))
		if out != 0 {
			a.own = append(a.own, transport.Span{Addr: out, Bytes: uintptr(len(p.Out))})
		}
		if in != out && in != 0 {
			a.own = append(a.own, transport.Span{Addr: in, Bytes: uintptr(len(p.In))})
		}
	}
	verdict := copiesAll
	switch {
	case !l.single.CanCopy():
		verdict = copiesNone
	case !l.single.Copyable(a.own):
		verdict = notNow
	}
	binary.NativeEndian.PutUint64(table[tableVerdict:], uint64(verdict))
	if l.rank == 0 {
		a.way = a.trial.next(a.all.length())
		binary.NativeEndian.PutUint64(table[tableWay:], uint64(a.way))
	}
}

// agreed reports that all members can copy, and that member 0 wants to.
func (a *allreduceSharedSingle) agreed() bool {
	l := a.lane
	agreed := true
	for m := range l.size {
		switch binary.NativeEndian.Uint64(l.shared.Buffer(m, a.chunk)[tableVerdict:]) {
		case copiesAll:
		case copiesNone:
			l.cannotCopy = true
			agreed = false
		default:
			agreed = false
		}
	}
	way := copyWay(binary.NativeEndian.Uint64(l.shared.Buffer(0, a.chunk)[tableWay:]))
	a.trial.told(a.all.length(), way)
	if agreed && a.way.timed() {
		a.began = time.Now()
	}
	return agreed && way.single()
}

// timed ends an operation that member 0 has timed.
func (a *allreduceSharedSingle) timed() {
	if !a.began.IsZero() {
		a.trial.took(a.way, a.all.length(), time.Since(a.began))
	}
}

// deal prepares this member's share of the reduction.
func (a *allreduceSharedSingle) deal() {
	l, s := a.lane, &a.todo
	l.single.Expose(a.own)
	a.block = max(lineBytes, l.copyBytes/l.size/lineBytes*lineBytes)
	if a.kind != Allgather && len(l.scratch) < l.size*a.block {
		clear(l.temporary(l.size * a.block)) // this brings its pages into memory
	}
	if !a.began.IsZero() { // the costs of the first use are over
		a.began = time.Now()
	}
	a.at, a.end = s.starts[0], s.length()
	if a.kind == Allreduce {
		a.at, a.end = share(s.length(), l.size, l.rank)
	}
	a.part = s.first(0, a.at)
}

// reduceBlock makes the next block on all members. It returns false if a copy has failed.
func (a *allreduceSharedSingle) reduceBlock() bool {
	l, s := a.lane, &a.todo
	lo, hi := a.at, min(a.at+a.block, a.end)
	a.part = s.first(a.part, lo)
	end := a.part // the first part behind the block
	for end < len(s.parts) && s.starts[end] < hi && end-a.part < singleSpans {
		end++
	}
	if end < len(s.parts) {
		hi = min(hi, s.starts[end])
	}
	for d := 1; d < l.size && a.kind != Allgather; d++ {
		if !a.pull((l.rank+d)%l.size, lo, hi, end) {
			return false
		}
	}
	if a.halted = a.inspects && !a.soundBlock(lo, hi, end); a.halted {
		return true
	}
	for i := a.part; i < end; i++ {
		a.reducePiece(lo, hi, i)
	}
	for d := 1; d < l.size && a.kind != Reducescatter; d++ {
		if !a.push((l.rank+d)%l.size, lo, hi, end) {
			return false
		}
	}
	a.at = hi
	return true
}

// soundBlock looks at this member's input of the parts before end in [lo, hi); pull has looked at the others'.
func (a *allreduceSharedSingle) soundBlock(lo, hi, end int) bool {
	s := &a.todo
	if a.unsound {
		return false
	}
	for i := a.part; i < end; i++ {
		if from, to := s.within(i, lo, hi); s.parts[i].In != nil && !a.lane.inspect.Sound(s.in(i, from, to)) {
			return false
		}
	}
	return true
}

// halt is where member m has stopped, or the end of its share, which ends at hi.
func (a *allreduceSharedSingle) halt(m int) (at, hi int) {
	lo, hi := share(a.todo.length(), a.lane.size, m)
	word := binary.NativeEndian.Uint64(a.lane.shared.Buffer(m, a.chunk)[tableHalt:])
	return max(lo, int(min(word, uint64(hi)))), hi
}

// anyHalted reports whether some member has stopped. The answer is the same on all members.
func (a *allreduceSharedSingle) anyHalted() bool {
	for m := range a.lane.size {
		if at, hi := a.halt(m); at < hi {
			return true
		}
	}
	return false
}

// inspectRest looks at this member's input where nothing has been reduced.
func (a *allreduceSharedSingle) inspectRest() error {
	s, inspect := &a.todo, a.lane.inspect
	for i := range s.parts {
		if s.parts[i].In == nil {
			continue
		}
		rest := a.left(i)
		sound := true
		for _, p := range rest {
			for ; len(p) > 0 && sound; p = p[min(inspectBytes, len(p)):] {
				sound = inspect.Sound(p[:min(inspectBytes, len(p))])
			}
		}
		if sound {
			continue
		}
		if err := inspect.Unsound(i, rest); err != nil {
			return err
		}
	}
	return nil
}

// left is what of part i's input has not been reduced.
func (a *allreduceSharedSingle) left(i int) iter.Seq2[int, []byte] {
	s := &a.todo
	return func(yield func(int, []byte) bool) {
		for m := range a.lane.size {
			b, e := s.within(i, 0, 0)
			if at, hi := a.halt(m); at < hi {
				b, e = s.within(i, at, hi)
			}
			if b < e && !yield(b-s.starts[i], s.in(i, b, e)) {
				return
			}
		}
	}
}

// scratch is the memory for the range [from, to) of member m in the block that starts at lo.
func (a *allreduceSharedSingle) scratch(m, lo, from, to int) []byte {
	return a.lane.scratch[m*a.block:][from-lo : to-lo]
}

// place is the address of the byte at `from` of the layout, which is within part i, in member m's input or output; 0 if
// it has none.
func (a *allreduceSharedSingle) place(m, i, field, from int) uintptr {
	at := uintptr(binary.NativeEndian.Uint64(a.lane.shared.Buffer(m, a.chunk)[tableParts+16*i+field:]))
	if at == 0 {
		return 0
	}
	if len(a.skips) > 0 {
		at += uintptr(a.skips[i])
	}
	return at + uintptr(from-a.todo.starts[i])
}

// pull copies member m's input of the parts before end in [lo, hi), prescaled.
func (a *allreduceSharedSingle) pull(m, lo, hi, end int) bool {
	s := &a.todo
	a.own, a.theirs = a.own[:0], a.theirs[:0]
	for i := a.part; i < end; i++ {
		from, to := s.within(i, lo, hi)
		into := a.scratch(m, lo, from, to)
		if at := a.place(m, i, tableIn, from); at == 0 {
			clear(into)
		} else {
			a.add(addressOf(into), at, to-from)
		}
	}
	if len(a.own) > 0 && !a.lane.single.Pull(m, a.own, a.theirs) {
		return false
	}
	for i := a.part; a.inspects && !a.unsound && i < end; i++ {
		from, to := s.within(i, lo, hi)
		a.unsound = !a.lane.inspect.Sound(a.scratch(m, lo, from, to))
	}
	if s.prescale != 1 {
		for i := a.part; i < end; i++ {
			from, to := s.within(i, lo, hi)
			into := a.scratch(m, lo, from, to)
			reduce.Scale(s.dt, into, into, s.prescale)
		}
	}
	return true
}

// push copies this member's output of the parts before end in [lo, hi) to member m.
func (a *allreduceSharedSingle) push(m, lo, hi, end int) bool {
	s := &a.todo
	a.own, a.theirs = a.own[:0], a.theirs[:0]
	for i := a.part; i < end; i++ {
		from, to := s.within(i, lo, hi)
		if at := a.place(m, i, tableOut, from); at != 0 {
			a.add(addressOf(a.result(lo, i, from, to)), at, to-from)
		}
	}
	return len(a.own) == 0 || a.lane.single.Push(m, a.theirs, a.own)
}

func (a *allreduceSharedSingle) add(own, theirs uintptr, n int) {
	if n > 0 {
		a.lane.sent[feed.ByMemory] += uint64(n)
		a.own = append(a.own, transport.Span{Addr: own, Bytes: uintptr(n)})
		a.theirs = append(a.theirs, transport.Span{Addr: theirs, Bytes: uintptr(n)})
	}
}

// output is the memory for this member's result of the range [from, to) of part i, in the block that starts at lo.
func (a *allreduceSharedSingle) output(lo, i, from, to int) []byte {
	if a.todo.parts[i].Out == nil {
		return a.scratch(a.lane.rank, lo, from, to)
	}
	return a.todo.out(i, from, to)
}

// result is this member's memory with the result of that range.
func (a *allreduceSharedSingle) result(lo, i, from, to int) []byte {
	if a.kind == Allgather {
		return a.todo.in(i, from, to)
	}
	return a.output(lo, i, from, to)
}

// reducePiece makes the result of part i in [lo, hi).
func (a *allreduceSharedSingle) reducePiece(lo, hi, i int) {
	l, s := a.lane, &a.todo
	from, to := s.within(i, lo, hi)
	if a.kind == Allgather {
		if s.parts[i].Out != nil {
			copyTo(s.out(i, from, to), s.in(i, from, to))
		}
		return
	}
	for m := range l.srcs {
		l.srcs[m] = a.scratch(m, lo, from, to)
	}
	out := a.output(lo, i, from, to)
	switch {
	case s.parts[i].In == nil:
		clear(l.srcs[l.rank])
	case s.prescale != 1:
		s.copyIn(out, i, from, to)
		l.srcs[l.rank] = out
	default:
		l.srcs[l.rank] = s.in(i, from, to)
	}
	reduce.Reduce(s.dt, s.op, out, l.srcs, s.postscale)
}

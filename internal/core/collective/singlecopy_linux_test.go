package collective

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/test/property"
)

// selfCopy makes members of one process copy one another's memory, by the kernel as they would between processes.
type selfCopy struct {
	transport.Shared
	able   bool
	crowd  bool
	refuse func() bool // some memory cannot be copied
	// exposed has copies of the ranges that Expose was called with.
	exposed [][]transport.Span
}

func (s *selfCopy) CanCopy() bool                      { return s.able }
func (s *selfCopy) Crowded() bool                      { return s.crowd }
func (s *selfCopy) Copyable(own []transport.Span) bool { return !s.refuse() }

func (s *selfCopy) Expose(own []transport.Span) { s.exposed = append(s.exposed, slices.Clone(own)) }

func (s *selfCopy) Pull(_ int, own, theirs []transport.Span) bool {
	return copySelf(unix.SYS_PROCESS_VM_READV, own, theirs)
}

func (s *selfCopy) Push(_ int, theirs, own []transport.Span) bool {
	return copySelf(unix.SYS_PROCESS_VM_WRITEV, own, theirs)
}

func copySelf(call uintptr, own, theirs []transport.Span) bool {
	want := uintptr(0)
	for _, p := range own {
		want += p.Bytes
	}
	got, _, _ := unix.Syscall6(call, uintptr(os.Getpid()), uintptr(unsafe.Pointer(&own[0])), uintptr(len(own)),
		uintptr(unsafe.Pointer(&theirs[0])), uintptr(len(theirs)), 0)
	return got == want
}

// copying lets all members of g but one copy from the others; -1: all. Refusals are drawn from rng.
func copying(g *group, unable int, rng *rand.Rand) {
	for m, l := range g.lanes {
		seed := rand.New(rand.NewPCG(rng.Uint64(), 0))
		l.single = &selfCopy{Shared: l.shared, able: m != unable, refuse: func() bool { return seed.IntN(10) == 0 }}
	}
}

func startSingle(l *Lane, s layout) Op {
	if s.length() == 0 {
		return l.startParts(s)
	}
	l.begin()
	c := l.copyTrial.class(s.length())
	c.judged, c.staged, c.between = true, false, leastBetween
	l.copyTrial.asks(s.length())
	return l.allreduceSingle.start(l, s)
}

// Members that copy from and to one another's memory have the same bits as members that do not, whatever the parts are,
// whichever members have them, and whichever members cannot be copied from, now or ever.
func TestSingleCopyMatchesTheReference(t *testing.T) {
	property.Check(t, func(rt *property.T) {
		size := property.Pick(rt, "size", []int{2, 3, 4, 7})
		g := newGroup(t, size, inproc.Options{Shared: true, Depth: 2 + size%3, ChunkBytes: 16 * testChunk})
		rng := rand.New(rand.NewPCG(rt.Uint64("seed"), 0))
		copying(g, rt.Int("unable", -6, size-1), rng)
		var jobs []job
		for range 4 {
			jobs = append(jobs, drawParts(rt, size).job(rng, startSingle), drawParts(rt, size).job(rng, startChosen))
		}
		if err := g.schedule(rng, jobs); err != nil {
			rt.Fatal(err)
		}
	})
}

// The same holds for lengths of several blocks, with more parts than the kernel takes at once, and over real shared
// memory.
func TestSingleCopyOverSharedMemory(t *testing.T) {
	rng := random(t)
	size := 3
	g := openGroup(t, openSharedMemory(t, size))
	if !g.lanes[0].single.CanCopy() {
		t.Fatal("this process may not read its own memory")
	}
	many := make([]int, 4000)
	for i := range many {
		many[i] = rng.IntN(30)
	}
	var jobs []job
	for _, lengths := range [][]int{{singleBytes / 4}, {3*singleScratch/4 + 5}, {singleBytes, 7, singleScratch/4 + 1, 0,
		4096}, many} {
		for range 3 {
			c := partsCase{dt: tensor.Float32, op: tensor.Sum, pre: 0.5, post: 3, lengths: lengths,
				absent: make([][]bool, size), inPlace: make([]bool, len(lengths))}
			for m := range c.absent {
				c.absent[m] = make([]bool, len(lengths))
				for i := range lengths {
					c.absent[m][i] = m == 1 && rng.IntN(4) == 0
					c.inPlace[i] = rng.IntN(2) == 0
				}
			}
			jobs = append(jobs, c.job(rng, startSingle), c.job(rng, startChosen))
		}
	}
	g.runConcurrently(t, jobs)
	for m, l := range g.lanes {
		if l.cannotCopy {
			t.Errorf("member %d found that it cannot be", m)
		}
	}
}

// If one member cannot copy from the others, the members exchange tables only once.
func TestSingleCopyIsGivenUp(t *testing.T) {
	rng := random(t)
	g := newGroup(t, 3, inproc.Options{Shared: true, ChunkBytes: 16 * testChunk})
	copying(g, 1, rng)
	c := partsCase{dt: tensor.Int32, op: tensor.Max, pre: 1, post: 1, lengths: []int{singleBytes},
		absent: [][]bool{{false}, {false}, {false}}, inPlace: []bool{true}}
	g.runConcurrently(t, []job{c.job(rng, startChosen)})
	for m, l := range g.lanes {
		if l.maySingleCopy(singleBytes, 1) {
			t.Errorf("member %d would ask again", m)
		}
	}
}

// Members that share cores exchange tables only from larger lengths on.
func TestWhoAsks(t *testing.T) {
	g := newGroup(t, 2, inproc.Options{Shared: true, ChunkBytes: 16 * testChunk})
	l := g.lanes[0]
	for _, c := range []struct {
		n, parts    int
		crowd, want bool
	}{
		{singleBytes, 1, false, true},
		{singleBytes - 1, 1, false, false},
		{crowdedBytes, 1, true, true},
		{crowdedBytes - 1, 1, true, false},
		{10 * singlePart, 10, false, true},
		{10*singlePart - 1, 10, false, false},
		{1 << 30, 1 << 14, false, false}, // the table is too long
	} {
		l.single = &selfCopy{Shared: l.shared, able: true, crowd: c.crowd}
		if got := l.maySingleCopy(c.n, c.parts); got != c.want {
			t.Errorf("%d bytes of %d parts, crowded %v: %v, want %v", c.n, c.parts, c.crowd, got, c.want)
		}
	}
}

// Expose is called once an operation, with the inputs and outputs that others copy: all of them and no more.
func TestSingleCopyTellsWhatIsCopied(t *testing.T) {
	g := newGroup(t, 2, inproc.Options{Shared: true, ChunkBytes: 16 * testChunk})
	copiers := make([]*selfCopy, 2)
	var mine [2][]transport.Span
	var parts [2][]Part
	for m, l := range g.lanes {
		copiers[m] = &selfCopy{Shared: l.shared, able: true, refuse: func() bool { return false }}
		l.single = copiers[m]
		tell := func(n int) []byte {
			p := make([]byte, n)
			mine[m] = append(mine[m], transport.Span{Addr: addressOf(p), Bytes: uintptr(n)})
			return p
		}
		both, out, in := tell(singleBytes), tell(4096), tell(4096)
		parts[m] = []Part{{In: both, Out: both, Bytes: len(both)}, {In: in, Out: out, Bytes: len(in)}}
	}
	parts[1][1], mine[1] = Part{Bytes: 4096}, mine[1][:1]
	g.runConcurrently(t, []job{{name: "two parts", start: func(l *Lane) Op {
		return startSingle(l, l.layout(tensor.Float32, tensor.Sum, parts[l.rank], 1, 1))
	}, check: func(int) error { return nil }}})
	for m, r := range copiers {
		if len(r.exposed) != 1 || !slices.Equal(r.exposed[0], mine[m]) {
			t.Errorf("member %d: told %v, want once %v", m, r.exposed, mine[m])
		}
	}
}

// Member 0 finds the faster way, and tries less and less often while that way stays the faster one. Trials that could
// not be timed do not mislead it. The other members know which allreduces have no tables.
func TestSingleCopyTrial(t *testing.T) {
	t.Run("1 MiB", func(t *testing.T) { testCopyTrial(t, 1<<20, 7) })
	t.Run("64 MiB", func(t *testing.T) { testCopyTrial(t, 64<<20, 3) })
}

func testCopyTrial(t *testing.T, n, each int) {
	var trial, other copyTrial
	const notAsked = copyWay(9)
	// run makes count allreduces. Those in the way `faster` take less time, by factor. It returns how often each way
	// was used.
	run := func(count int, faster copyWay, factor time.Duration, measured bool) map[copyWay]int {
		uses := map[copyWay]int{}
		for range count {
			asks := trial.asks(n)
			if other.asks(n) != asks {
				t.Fatal("one member asks and another does not")
			}
			if !asks {
				uses[notAsked]++
				continue
			}
			w := trial.next(n)
			uses[w]++
			trial.told(n, w)
			other.told(n, w)
			if d := 10 * time.Millisecond; w.timed() && measured {
				if w&waySingle == faster {
					d /= factor
				}
				if uses[w]%3 == 2 { // as if another process had the core
					d *= 5
				}
				trial.took(w, n, d)
			}
		}
		return uses
	}
	later := trialPace*each + 1 // allreduces of a later trial
	const timedStaged, timedSingle = wayStaged | wayTimed, waySingle | wayTimed
	for _, c := range []struct {
		name     string
		count    int
		faster   copyWay
		factor   time.Duration
		measured bool
		uses     map[copyWay]int
	}{
		{"the first trial finds one copy much better", 8 + 250, waySingle, 3, true,
			map[copyWay]int{wayStaged: 4, timedStaged: 2, timedSingle: 1, waySingle | wayClear: 1, waySingle: 250}},
		{"a trial confirms it", later + 1000, waySingle, 3, true,
			map[copyWay]int{timedStaged: each, timedSingle: each, waySingle: later - 2*each + 1000}},
		{"nothing can be measured", later + 4000, wayStaged, 3, false,
			map[copyWay]int{timedStaged: each, timedSingle: each, waySingle: later - 2*each + 4000}},
		{"staging has become better", later + 250, wayStaged, 2, true,
			map[copyWay]int{timedStaged: each, timedSingle: each, waySingle: later - 2*each - 1, wayStaged: 1,
				notAsked: 250}},
		{"it stays better", later + 1000 + later + 4000 + later + 4000, wayStaged, 2, true,
			map[copyWay]int{timedStaged: 3 * each, timedSingle: 3 * each, wayStaged: 3,
				notAsked: 3*(later-2*each-1) + 9000}},
	} {
		if uses := run(c.count, c.faster, c.factor, c.measured); !maps.Equal(uses, c.uses) {
			t.Errorf("%s: %d allreduces used the ways %v, want %v", c.name, c.count, uses, c.uses)
		}
	}
}

// After a first trial without a clear verdict the next trial follows soon.
func TestUnclearVerdictIsTriedSoon(t *testing.T) {
	var trial copyTrial
	const n = 1 << 20
	for range len(firstWays) + 1 {
		trial.asks(n)
		w := trial.next(n)
		trial.told(n, w)
		if w.timed() {
			trial.took(w, n, time.Millisecond)
		}
	}
	if c := trial.class(n); !c.judged || c.between != trialPace {
		t.Errorf("judged %v, the next trial follows after %d allreduces, want %d", c.judged, c.between, trialPace)
	}
}

// Lengths that differ by a factor of two or more do not decide for one another.
func TestSingleCopyClasses(t *testing.T) {
	var trial copyTrial
	for n, want := range map[int]int{1: 0, singleBytes: 0, 2*singleBytes - 1: 0, 2 * singleBytes: 1, 4 << 20: 5,
		16 << 20: 7, 1 << 40: copyClasses - 1} {
		if trial.class(n) != &trial.classes[want] {
			t.Errorf("%d bytes are not of class %d", n, want)
		}
	}
}

// Nothing is allocated once the lists have grown.
func TestSingleCopyAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	g := openGroup(t, openSharedMemory(t, 2))
	data := [2][]byte{make([]byte, 2*singleBytes), make([]byte, 2*singleBytes)}
	round := func() {
		var live [2]Op
		for r, l := range g.lanes {
			live[r] = l.Allreduce(tensor.Float32, tensor.Sum, data[r], data[r], 1)
		}
		for ended := 0; ended < len(live); {
			ended = 0
			for _, op := range live {
				if done, _ := op.Advance(); done {
					ended++
				}
			}
		}
	}
	if n := testing.AllocsPerRun(20, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

// Reducescatters and allgathers of parts, too.
func TestSingleCopyOfDealtParts(t *testing.T) {
	property.Check(t, func(rt *property.T) {
		size := property.Pick(rt, "size", []int{2, 3, 4, 7})
		g := newGroup(t, size, inproc.Options{Shared: true, Depth: 2 + size%3, ChunkBytes: 16 * testChunk})
		rng := rand.New(rand.NewPCG(rt.Uint64("seed"), 0))
		copying(g, rt.Int("unable", -6, size-1), rng)
		var jobs []job
		for range 3 {
			jobs = append(jobs, drawDealt(rt, size).scatterJob(rng, startDealtSingle),
				drawDealt(rt, size).gatherJob(rng, startDealtSingle),
				drawDealt(rt, size).scatterJob(rng, startDealt))
		}
		if err := g.schedule(rng, jobs); err != nil {
			rt.Fatal(err)
		}
	})
}

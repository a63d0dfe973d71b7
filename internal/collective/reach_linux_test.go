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

	"github.com/gorovod/gorovod/internal/tensor"
	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/internal/transport/inproc"
	"github.com/gorovod/gorovod/test/property"
)

// selfReach makes members of one process reach one another, by the kernel as they would between processes.
type selfReach struct {
	transport.Shared
	able   bool
	crowd  bool
	refuse func() bool // some memory cannot be reached
	// settled has copies of what it was told.
	settled [][]transport.Span
}

func (s *selfReach) Reaches() bool                       { return s.able }
func (s *selfReach) Crowded() bool                       { return s.crowd }
func (s *selfReach) Reachable(own []transport.Span) bool { return !s.refuse() }

func (s *selfReach) Settle(own []transport.Span) { s.settled = append(s.settled, slices.Clone(own)) }

func (s *selfReach) Pull(_ int, own, theirs []transport.Span) bool {
	return copySelf(unix.SYS_PROCESS_VM_READV, own, theirs)
}

func (s *selfReach) Push(_ int, theirs, own []transport.Span) bool {
	return copySelf(unix.SYS_PROCESS_VM_WRITEV, own, theirs)
}

func copySelf(call uintptr, own, theirs []transport.Span) bool {
	want := uintptr(0)
	for _, p := range own {
		want += p.Bytes
	}
	got, _, _ := unix.Syscall6(call, uintptr(os.Getpid()), uintptr(unsafe.Pointer(&own[0])), uintptr(len(own)), uintptr(unsafe.Pointer(&theirs[0])), uintptr(len(theirs)), 0)
	return got == want
}

// reaching lets all members of g but one reach the others; -1: all. Refusals are drawn from rng.
func reaching(g *group, unable int, rng *rand.Rand) {
	for m, l := range g.lanes {
		seed := rand.New(rand.NewPCG(rng.Uint64(), 0))
		l.reach = &selfReach{Shared: l.shared, able: m != unable, refuse: func() bool { return seed.IntN(10) == 0 }}
	}
}

func startReach(l *Lane, s spread) Op {
	if s.length() == 0 {
		return l.startParts(s)
	}
	l.begin()
	c := l.reachTrial.class(s.length())
	c.judged, c.staged, c.between = true, false, leastBetween
	l.reachTrial.asks(s.length())
	return l.allreduceReach.start(l, s)
}

// Members that copy from and to one another's memory have the bits of those that do
// not, whatever the parts are, who has them, and who cannot be reached now or ever.
func TestReachMatchesTheReference(t *testing.T) {
	property.Check(t, func(rt *property.T) {
		size := property.Pick(rt, "size", []int{2, 3, 4, 7})
		g := newGroup(t, size, inproc.Options{Shared: true, Depth: 2 + size%3, ChunkBytes: 16 * testChunk})
		rng := rand.New(rand.NewPCG(rt.Uint64("seed"), 0))
		reaching(g, rt.Int("unable", -6, size-1), rng)
		var jobs []job
		for range 4 {
			jobs = append(jobs, drawParts(rt, size).job(rng, startReach), drawParts(rt, size).job(rng, startChosen))
		}
		if err := g.schedule(rng, jobs); err != nil {
			rt.Fatal(err)
		}
	})
}

// So it is with lengths of several blocks, with more parts than the kernel takes at once, and over real shared memory.
func TestReachOverSharedMemory(t *testing.T) {
	rng := random(t)
	size := 3
	g := openGroup(t, openSharedMemory(t, size))
	if !g.lanes[0].reach.Reaches() {
		t.Fatal("this process may not read its own memory")
	}
	many := make([]int, 4000)
	for i := range many {
		many[i] = rng.IntN(30)
	}
	var jobs []job
	for _, lengths := range [][]int{{reachBytes / 4}, {3*reachScratch/4 + 5}, {reachBytes, 7, reachScratch/4 + 1, 0, 4096}, many} {
		for range 3 {
			c := partsCase{dt: tensor.Float32, op: tensor.Sum, pre: 0.5, post: 3, lengths: lengths, absent: make([][]bool, size), inPlace: make([]bool, len(lengths))}
			for m := range c.absent {
				c.absent[m] = make([]bool, len(lengths))
				for i := range lengths {
					c.absent[m][i] = m == 1 && rng.IntN(4) == 0
					c.inPlace[i] = rng.IntN(2) == 0
				}
			}
			jobs = append(jobs, c.job(rng, startReach), c.job(rng, startChosen))
		}
	}
	g.runConcurrently(t, jobs)
	for m, l := range g.lanes {
		if l.reachTrial.impossible {
			t.Errorf("member %d found that it cannot be", m)
		}
	}
}

// One member that cannot reach the others is asked once.
func TestReachIsGivenUp(t *testing.T) {
	rng := random(t)
	g := newGroup(t, 3, inproc.Options{Shared: true, ChunkBytes: 16 * testChunk})
	reaching(g, 1, rng)
	c := partsCase{dt: tensor.Int32, op: tensor.Max, pre: 1, post: 1, lengths: []int{reachBytes}, absent: [][]bool{{false}, {false}, {false}}, inPlace: []bool{true}}
	g.runConcurrently(t, []job{c.job(rng, startChosen)})
	for m, l := range g.lanes {
		if l.mayReach(reachBytes, 1) {
			t.Errorf("member %d would ask again", m)
		}
	}
}

// Members that share cores ask one another from larger lengths on.
func TestWhoAsks(t *testing.T) {
	g := newGroup(t, 2, inproc.Options{Shared: true, ChunkBytes: 16 * testChunk})
	l := g.lanes[0]
	for _, c := range []struct {
		n, parts    int
		crowd, want bool
	}{
		{reachBytes, 1, false, true},
		{reachBytes - 1, 1, false, false},
		{crowdedBytes, 1, true, true},
		{crowdedBytes - 1, 1, true, false},
		{10 * reachPart, 10, false, true},
		{10*reachPart - 1, 10, false, false},
		{1 << 30, 1 << 14, false, false}, // the table is too long
	} {
		l.reach = &selfReach{Shared: l.shared, able: true, crowd: c.crowd}
		if got := l.mayReach(c.n, c.parts); got != c.want {
			t.Errorf("%d bytes of %d parts, crowded %v: %v, want %v", c.n, c.parts, c.crowd, got, c.want)
		}
	}
}

// What others reach is told, once an operation: inputs and outputs, all of them and no more.
func TestReachTellsWhatIsReached(t *testing.T) {
	g := newGroup(t, 2, inproc.Options{Shared: true, ChunkBytes: 16 * testChunk})
	reaches := make([]*selfReach, 2)
	var mine [2][]transport.Span
	var parts [2][]Part
	for m, l := range g.lanes {
		reaches[m] = &selfReach{Shared: l.shared, able: true, refuse: func() bool { return false }}
		l.reach = reaches[m]
		tell := func(n int) []byte {
			p := make([]byte, n)
			mine[m] = append(mine[m], transport.Span{Addr: addressOf(p), Bytes: uintptr(n)})
			return p
		}
		both, out, in := tell(reachBytes), tell(4096), tell(4096)
		parts[m] = []Part{{In: both, Out: both, Bytes: len(both)}, {In: in, Out: out, Bytes: len(in)}}
	}
	parts[1][1], mine[1] = Part{Bytes: 4096}, mine[1][:1]
	g.runConcurrently(t, []job{{name: "two parts", start: func(l *Lane) Op {
		return startReach(l, l.spread(tensor.Float32, tensor.Sum, parts[l.rank], 1, 1))
	}, check: func(int) error { return nil }}})
	for m, r := range reaches {
		if len(r.settled) != 1 || !slices.Equal(r.settled[0], mine[m]) {
			t.Errorf("member %d: told %v, want once %v", m, r.settled, mine[m])
		}
	}
}

// Member 0 finds the faster way, tries less and less often while it stays that, and is not misled by trials that could not be timed.
// The others know when nobody asks.
func TestReachTrial(t *testing.T) {
	t.Run("1 MiB", func(t *testing.T) { testReachTrial(t, 1<<20, 7) })
	t.Run("64 MiB", func(t *testing.T) { testReachTrial(t, 64<<20, 3) })
}

func testReachTrial(t *testing.T, n, each int) {
	var trial, other reachTrial
	const notAsked = reachWay(9)
	// run has so many allreduces, of which those in a way take less, and returns how often each was used.
	run := func(count int, faster reachWay, factor time.Duration, measured bool) map[reachWay]int {
		uses := map[reachWay]int{}
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
				if w&wayReach == faster {
					d /= factor
				}
				if uses[w]%3 == 2 { // another process had the core
					d *= 5
				}
				trial.took(w, n, d)
			}
		}
		return uses
	}
	later := trialPace*each + 1 // allreduces of a later trial
	const timedStaged, timedReach = wayStaged | wayTimed, wayReach | wayTimed
	for _, c := range []struct {
		name     string
		count    int
		faster   reachWay
		factor   time.Duration
		measured bool
		uses     map[reachWay]int
	}{
		{"the first trial finds one copy much better", 8 + 250, wayReach, 3, true,
			map[reachWay]int{wayStaged: 4, timedStaged: 2, timedReach: 1, wayReach | wayClear: 1, wayReach: 250}},
		{"a trial confirms it", later + 1000, wayReach, 3, true,
			map[reachWay]int{timedStaged: each, timedReach: each, wayReach: later - 2*each + 1000}},
		{"nothing can be measured", later + 4000, wayStaged, 3, false,
			map[reachWay]int{timedStaged: each, timedReach: each, wayReach: later - 2*each + 4000}},
		{"staging has become better", later + 250, wayStaged, 2, true,
			map[reachWay]int{timedStaged: each, timedReach: each, wayReach: later - 2*each - 1, wayStaged: 1, notAsked: 250}},
		{"it stays better", later + 1000 + later + 4000 + later + 4000, wayStaged, 2, true,
			map[reachWay]int{timedStaged: 3 * each, timedReach: 3 * each, wayStaged: 3, notAsked: 3*(later-2*each-1) + 9000}},
	} {
		if uses := run(c.count, c.faster, c.factor, c.measured); !maps.Equal(uses, c.uses) {
			t.Errorf("%s: %d allreduces used the ways %v, want %v", c.name, c.count, uses, c.uses)
		}
	}
}

// After a first trial without a clear verdict the next one follows soon.
func TestUnclearVerdictIsTriedSoon(t *testing.T) {
	var trial reachTrial
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
func TestReachClasses(t *testing.T) {
	var trial reachTrial
	for n, want := range map[int]int{1: 0, reachBytes: 0, 2*reachBytes - 1: 0, 2 * reachBytes: 1, 4 << 20: 5, 16 << 20: 7, 1 << 40: reachClasses - 1} {
		if trial.class(n) != &trial.classes[want] {
			t.Errorf("%d bytes are not of class %d", n, want)
		}
	}
}

// Nothing is allocated once the lists have grown.
func TestReachAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	g := openGroup(t, openSharedMemory(t, 2))
	data := [2][]byte{make([]byte, 2*reachBytes), make([]byte, 2*reachBytes)}
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

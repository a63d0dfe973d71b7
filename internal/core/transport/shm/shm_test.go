//go:build linux

package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
	"github.com/gorovod/gorovod/test/leak"
)

var generation atomic.Uint64

func testConfig(t testing.TB, rank, size int) Config {
	return Config{Rank: rank, Size: size, Key: []byte("secret"), Job: fmt.Sprint(t.Name(), os.Getpid()),
		Generation: generation.Load(), Timeout: 20 * time.Second, Cards: 64}
}

// openWorld opens size networks in this process.
func openWorld(t testing.TB, size int, change func(*Config)) []*Network {
	t.Helper()
	generation.Add(1)
	nets, errs := make([]*Network, size), make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		c := testConfig(t, r, size)
		if change != nil {
			change(&c)
		}
		wg.Go(func() { nets[r], errs[r] = Open(t.Context(), c) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, n := range nets {
			n.Close()
		}
	})
	return nets
}

func openLanes(t testing.TB, nets []*Network, id int, members []int) []*transport.Lane {
	t.Helper()
	lanes, errs := make([]*transport.Lane, len(members)), make([]error, len(members))
	var wg sync.WaitGroup
	for i, r := range members {
		wg.Go(func() { lanes[i], errs[i] = nets[r].OpenLane(id, 0, members) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return lanes
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// bothBells runs a test with futexes and with descriptors as bells.
func bothBells(t *testing.T, test func(t *testing.T, change func(*Config))) {
	for name, alarm := range map[string]bool{"futex": false, "alarm": true} {
		t.Run(name, func(t *testing.T) { test(t, func(c *Config) { c.Alarm = alarm }) })
	}
}

func TestNothingIsLeft(t *testing.T) { bothBells(t, testNothingIsLeft) }

func testNothingIsLeft(t *testing.T, bells func(*Config)) {
	warm := openWorld(t, 2, nil) // Go's poller keeps its own descriptors
	for _, n := range warm {
		n.Close()
	}
	before := descriptors(t)
	tracked := map[int]bool{}
	var mu sync.Mutex
	nets := openWorld(t, 3, func(c *Config) {
		bells(c)
		c.TrackFD = func(fd int, open bool) {
			mu.Lock()
			defer mu.Unlock()
			if tracked[fd] == open {
				t.Errorf("descriptor %d: open %v twice", fd, open)
			}
			tracked[fd] = open
		}
	})
	openLanes(t, nets, 0, []int{0, 1, 2})
	open := 0
	for _, o := range tracked {
		if o {
			open++
		}
	}
	if d := descriptors(t) - before; d != open {
		t.Errorf("%d descriptors were opened, %d are tracked", d, open)
	}
	for _, n := range nets {
		for range 2 {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
		if n.Err() == nil {
			t.Error("a closed network has no error")
		}
		n.Bell().Ring()
		n.Abort(errors.New("late"))
	}
	if d := descriptors(t); d != before {
		t.Errorf("%d descriptors are left", d-before)
	}
	for fd, o := range tracked {
		if o {
			t.Errorf("descriptor %d is still tracked", fd)
		}
	}
	leak.Check(t)
}

func TestLaneBoardAcrossRanks(t *testing.T) {
	nets := openWorld(t, 3, nil)
	lanes := openLanes(t, nets, 0, []int{0, 1, 2})
	if !lanes[2].Board.Post([]byte("please")) {
		t.Fatal("no room for a first request")
	}
	got := ""
	lanes[0].Coordination.TakeRequests(func(from []int, p []byte) { got = fmt.Sprint(from[0], " ", string(p)) })
	if got != "2 please" {
		t.Fatalf("coordinator got %q", got)
	}
	card, gen, ok := lanes[0].Coordination.Acquire()
	if !ok || lanes[0].Coordination.Publish([]byte("answer")) == 0 {
		t.Fatal("no card or no room")
	}
	for m, l := range lanes {
		r := l.Board.Next()
		if len(r) != 1 || string(r[0].Payload) != "answer" {
			t.Fatalf("member %d got %v", m, r)
		}
	}
	for m, l := range lanes {
		if !l.Board.Mark(card, gen) {
			t.Fatalf("member %d: stale", m)
		}
	}
	if lanes[1].Board.Mark(card, gen+1) {
		t.Fatal("a mark of another generation was taken")
	}
	lanes[1].Board.Close()
	for m, l := range lanes {
		if l.Board.Closed() {
			t.Fatalf("member %d: closed before its last record", m)
		}
		if r := l.Board.Next(); len(r) != 1 || r[0].Kind != transport.RecordCard || r[0].Card != card {
			t.Fatalf("member %d got %v", m, r)
		}
		if !l.Board.Closed() || l.Board.ClosedBy() != 1 {
			t.Fatalf("member %d: closed %v by %d", m, l.Board.Closed(), l.Board.ClosedBy())
		}
	}
	for r, n := range nets {
		if err := n.Err(); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestLanesShareNothing(t *testing.T) {
	nets := openWorld(t, 3, nil)
	a := openLanes(t, nets, 0, []int{0, 1, 2})
	b := openLanes(t, nets, MaxLanes-1, []int{1, 2})
	fill := func(s transport.Shared, tag byte) {
		if s.ChunkBytes()%(64*s.Size()) != 0 || s.ChunkBytes() < leastTile {
			t.Fatalf("chunks of %d bytes for %d members", s.ChunkBytes(), s.Size())
		}
		for k := range uint64(s.Depth()) {
			p := s.Buffer(s.Rank(), k)
			for i := range p {
				p[i] = tag + byte(16*s.Rank()) + byte(k)
			}
			s.Advance(transport.In, k+1)
		}
	}
	for _, l := range append(append([]*transport.Lane{}, a...), b...) {
		tag := byte(0)
		if l.Shared.Size() == 2 {
			tag = 128
		}
		fill(l.Shared, tag)
	}
	check := func(lanes []*transport.Lane, tag byte) {
		for _, l := range lanes {
			for m := range lanes {
				for p := range transport.NumPhases {
					want := uint64(0)
					if p == transport.In {
						want = depth
					}
					if got := l.Shared.Counter(m, p); got != want {
						t.Errorf("counter %d of member %d is %d, want %d", p, m, got, want)
					}
				}
				for k := range uint64(depth) {
					p := l.Shared.Buffer(m, k+depth)
					if addr := &p[0]; len(p) != l.Shared.ChunkBytes() || bytes.Count(p, p[:1]) != len(p) ||
						*addr != tag+byte(16*m)+byte(k) {
						t.Errorf("buffer %d of member %d is damaged", k, m)
					}
				}
			}
		}
	}
	check(a, 0)
	check(b, 128)
}

func TestLaneCanBeReopened(t *testing.T) {
	nets := openWorld(t, 3, nil)
	for round, members := range [][]int{{0, 1, 2}, {0, 1, 2}, {1, 2}, {0, 2}} {
		lanes := openLanes(t, nets, 5, members)
		for i, l := range lanes {
			if l.Board.ClosedBy() != -1 || l.Board.Next() != nil {
				t.Fatalf("round %d: the board is not new", round)
			}
			if got := l.Shared.Counter(i, transport.In); got != 0 {
				t.Fatalf("round %d: counter %d", round, got)
			}
			l.Shared.Advance(transport.In, 7)
		}
		if _, err := nets[2].OpenLane(5, 0, members); err == nil {
			t.Fatal("opened twice")
		}
		lanes[0].Coordination.Publish([]byte("x"))
		lanes[1].Board.Close()
		for i := len(members) - 1; i >= 0; i-- {
			if err := nets[members[i]].CloseLane(5); err != nil {
				t.Fatal(err)
			}
			if !lanes[i].Board.Mark(0, 1) || !lanes[i].Board.Post(nil) {
				t.Fatal("a lane that is gone asks for a retry")
			}
		}
	}
	if err := nets[0].CloseLane(5); err == nil {
		t.Error("closed twice")
	}
	if err := nets[0].Err(); err != nil {
		t.Error(err)
	}
}

func TestBadLanes(t *testing.T) {
	n := openWorld(t, 1, nil)[0]
	for _, bad := range []struct {
		id      int
		members []int
	}{{-1, []int{0}}, {MaxLanes, []int{0}}, {0, nil}, {0, []int{1}}, {0, []int{0, 0}}, {0, []int{-1, 0}}} {
		if _, err := n.OpenLane(bad.id, 0, bad.members); err == nil {
			t.Errorf("lane %d of %v was opened", bad.id, bad.members)
		}
	}
	if err := n.Err(); err != nil {
		t.Errorf("an invalid call aborted the network: %v", err)
	}
	if _, err := n.OpenLane(0, 0, []int{0}); err != nil {
		t.Error(err)
	}
}

func TestLaneWithoutItsFirstMemberTimesOut(t *testing.T) {
	nets := openWorld(t, 2, func(c *Config) { c.Timeout = 300 * time.Millisecond })
	_, err := nets[1].OpenLane(3, 0, []int{0, 1})
	if err == nil || !strings.Contains(err.Error(), "rank 0") {
		t.Fatalf("error %v", err)
	}
	if nets[0].Err() == nil {
		t.Error("rank 0 was not told")
	}
}

// The driver verifies the shared memory while another thread opens a lane that others have not opened yet.
func TestVerifyDoesNotWaitForALaneThatOpens(t *testing.T) {
	nets := openWorld(t, 2, nil)
	openLanes(t, nets, 0, []int{0, 1})
	opened := make(chan error)
	go func() {
		_, err := nets[1].OpenLane(1, 1, []int{0, 1})
		opened <- err
	}()
	time.Sleep(50 * time.Millisecond) // until rank 1 waits in OpenLane
	looked := make(chan error)
	go func() { looked <- nets[1].Verify() }()
	select {
	case err := <-looked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testConfig(t, 0, 2).Timeout / 2):
		t.Error("Verify waits for the lane")
	}
	if _, err := nets[0].OpenLane(1, 1, []int{0, 1}); err != nil {
		t.Error(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// Close ends the opening of a lane.
func TestCloseEndsTheOpeningOfALane(t *testing.T) {
	nets := openWorld(t, 2, nil)
	opened := make(chan error)
	go func() {
		_, err := nets[1].OpenLane(0, 0, []int{0, 1})
		opened <- err
	}()
	time.Sleep(50 * time.Millisecond)
	nets[1].Close()
	if err := <-opened; !errors.Is(err, errClosed) {
		t.Errorf("the opening ends with %v", err)
	}
}

func TestRingAfterArmIsNotLost(t *testing.T) { bothBells(t, testRingAfterArm) }

func testRingAfterArm(t *testing.T, bells func(*Config)) {
	nets := openWorld(t, 2, bells)
	bell := nets[1].Bell()
	ticket := bell.Arm()
	nets[0].head.ring(1)
	bell.Sleep(ticket, time.Hour) // returns at once, or the test times out

	ticket = bell.Arm()
	bell.Disarm()
	before := nets[1].head.bell(1).word.Load()
	nets[0].head.ring(1)
	if nets[1].head.bell(1).word.Load() != before {
		t.Error("a rank that is awake was rung")
	}
	bell.Sleep(ticket, -1)
	bell.Sleep(bell.Arm(), time.Microsecond) // nobody rings, so the time-out ends the sleep
}

// TestSleepersAreWoken passes a token around ranks that always sleep: after one lost ring it hangs.
func TestSleepersAreWoken(t *testing.T) { bothBells(t, testSleepersAreWoken) }

func testSleepersAreWoken(t *testing.T, bells func(*Config)) {
	const size, rounds = 3, 300
	nets := openWorld(t, size, bells)
	lanes := openLanes(t, nets, 0, []int{0, 1, 2})
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			s, bell := lanes[r].Shared, nets[r].Bell()
			for k := range uint64(rounds) {
				prev, want := (r+size-1)%size, k
				if r > 0 {
					want = k + 1
				}
				for s.Counter(prev, transport.Mid) < want {
					ticket := bell.Arm()
					if s.Counter(prev, transport.Mid) >= want {
						bell.Disarm()
						break
					}
					bell.Sleep(ticket, time.Hour)
				}
				s.Lead(transport.Mid, k+1)
			}
		})
	}
	wg.Wait()
}

// Members that sleep until all have come are woken by the member that comes last, whichever that is.
func TestTheLastWakesSleepers(t *testing.T) { bothBells(t, testTheLastWakesSleepers) }

func testTheLastWakesSleepers(t *testing.T, bells func(*Config)) {
	const size, rounds = 3, 2000
	nets := openWorld(t, size, bells)
	lanes := openLanes(t, nets, 0, []int{0, 1, 2})
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			s, bell := lanes[r].Shared, nets[r].Bell().(transport.AmidBell)
			all := func(v uint64) bool {
				return min(s.Counter(0, transport.In), s.Counter(1, transport.In), s.Counter(2, transport.In)) >= v
			}
			for k := uint64(1); k <= rounds; k++ {
				if int(k)%size == r {
					runtime.Gosched() // so that each is the last at times
				}
				s.Advance(transport.In, k)
				for !all(k) {
					ticket := bell.ArmAmid()
					if all(k) {
						bell.Disarm()
						break
					}
					bell.Sleep(ticket, time.Hour)
				}
			}
		})
	}
	wg.Wait()
}

// Before the last member has come, nobody is woken.
func TestOnlyTheLastWakes(t *testing.T) {
	nets := openWorld(t, 3, nil)
	lanes := openLanes(t, nets, 0, []int{0, 1, 2})
	sleeps := func() bool { return nets[0].head.sleeps(0) }
	nets[0].Bell().Arm()
	lanes[0].Shared.Advance(transport.In, 1)
	lanes[1].Shared.Advance(transport.In, 1)
	if !sleeps() {
		t.Error("the first of two others wakes a member that waits for both")
	}
	lanes[2].Shared.Advance(transport.In, 1)
	if sleeps() {
		t.Error("the last does not wake it")
	}
	nets[0].Bell().Arm()
	lanes[1].Shared.Lead(transport.In, 2)
	if sleeps() {
		t.Error("Lead does not wake it")
	}
}

// A new record of a log wakes a driver that could begin an operation, and no other driver.
func TestRecordsDoNotWakeAmidCollective(t *testing.T) {
	nets := openWorld(t, 2, nil)
	lanes := openLanes(t, nets, 0, []int{0, 1})
	card, gen, _ := lanes[0].Coordination.Acquire()
	bell := nets[0].Bell().(transport.AmidBell)
	for _, c := range []struct {
		arm   func() uint32
		woken bool
	}{{bell.Arm, true}, {bell.ArmAmid, false}} {
		c.arm()
		lanes[0].Board.Mark(card, gen)
		lanes[1].Board.Mark(card, gen)
		if woken := !nets[0].head.sleeps(0); woken != c.woken {
			t.Errorf("woken %t, want %t", woken, c.woken)
		}
		bell.Disarm()
		for _, l := range lanes {
			l.Board.Next()
		}
	}
	bell.ArmAmid()
	lanes[1].Board.Post([]byte("request"))
	if nets[0].head.sleeps(0) {
		t.Error("a request does not wake its coordinator")
	}
}

func TestAbortReachesAll(t *testing.T) { bothBells(t, testAbortReachesAll) }

func testAbortReachesAll(t *testing.T, bells func(*Config)) {
	nets := openWorld(t, 3, bells)
	woken := make(chan error)
	ticket := nets[2].Bell().Arm()
	go func() {
		nets[2].Bell().Sleep(ticket, time.Hour)
		woken <- nets[2].Err()
	}()
	cause := errors.New("rank 7 lost its mind")
	nets[1].Abort(cause)
	nets[0].Abort(errors.New("second"))
	if err := nets[1].Err(); err != cause {
		t.Errorf("own error is %v", err)
	}
	if err := <-woken; err == nil || !strings.Contains(err.Error(), cause.Error()) || !strings.Contains(err.Error(),
		"rank 1") {
		t.Errorf("the sleeper's error is %v", err)
	}
	if err := nets[0].Err(); err == nil || !strings.Contains(err.Error(), cause.Error()) {
		t.Errorf("the second abort won on its own rank: %v", err)
	}
	for _, n := range nets {
		if _, err := n.OpenLane(0, 0, []int{0, 1, 2}); err == nil {
			t.Error("a lane was opened on an aborted network")
		}
	}
}

func TestLongAbortTextIsCut(t *testing.T) {
	nets := openWorld(t, 2, nil)
	nets[0].Abort(errors.New(strings.Repeat("é", maxAbortText)))
	err := nets[1].Err()
	if err == nil || !strings.HasPrefix(err.Error(), strings.Repeat("é", maxAbortText/2)+" (") {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

func TestCorruptBoardAborts(t *testing.T) {
	nets := openWorld(t, 2, nil)
	lanes := openLanes(t, nets, 0, []int{0, 1})
	lanes[0].Coordination.Publish([]byte("x"))
	clear(nets[0].seg.mem[:64<<10]) // wipes the lock, the log's registers and the cards
	region := nets[0].seg.mem
	for i := 192; i < 256; i++ { // log positions out of any bound
		region[i] = 0xf1
	}
	if r := lanes[1].Board.Next(); r != nil {
		t.Errorf("records %v of a corrupt log", r)
	}
	for r, n := range nets {
		if n.Err() == nil {
			t.Errorf("rank %d has no error", r)
		}
	}
}

func TestMissingRanksAreNamed(t *testing.T) {
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, r := range []int{0, 2} {
		c := testConfig(t, r, 5)
		c.Timeout = 500 * time.Millisecond
		wg.Go(func() { _, errs[i] = Open(t.Context(), c) })
	}
	wg.Wait()
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "ranks 1, 3, 4 have not attached") {
		t.Errorf("rank 0: %v", errs[0])
	}
	if errs[1] == nil {
		t.Error("rank 2 attached to an incomplete world")
	}
	leak.Check(t)
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for r := range 2 {
		if _, err := Open(ctx, testConfig(t, r, 2)); !errors.Is(err, context.Canceled) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	leak.Check(t)
}

func TestStrangersAreRefused(t *testing.T) {
	generation.Add(1)
	c0, c1 := testConfig(t, 0, 2), testConfig(t, 1, 2)
	done := make(chan error)
	var n0 *Network
	go func() {
		var err error
		n0, err = Open(t.Context(), c0)
		done <- err
	}()
	dial := func() *net.UnixConn {
		conn, err := (&Network{cfg: c1}).dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		return conn
	}
	silent := dial() // neither sends nor closes
	defer silent.Close()
	conn := dial()
	if err := auth.Initiate(conn, []byte("another secret"), hello{1, 2, os.Getpid()}.encode()); err == nil {
		t.Error("the wrong key was accepted")
	}
	conn.Close()
	n1, err := Open(t.Context(), c1)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n0.Close()
	n1.Close()
	leak.Check(t)
}

func TestGenerationsDoNotMeet(t *testing.T) {
	c0, c1 := testConfig(t, 0, 2), testConfig(t, 1, 2)
	c1.Generation++
	c0.Timeout, c1.Timeout = 300*time.Millisecond, 300*time.Millisecond
	var wg sync.WaitGroup
	for _, c := range []Config{c0, c1} {
		wg.Go(func() {
			if _, err := Open(t.Context(), c); err == nil {
				t.Errorf("rank %d found a world", c.Rank)
			}
		})
	}
	wg.Wait()
}

func TestNoMemoryIsExplained(t *testing.T) {
	err := reserve(-1, 0, 12345)
	if err == nil || !strings.Contains(err.Error(), "12345 bytes") {
		t.Errorf("error %v", err)
	}
}

func TestHotPathsAllocateNothing(t *testing.T) {
	nets := openWorld(t, 2, nil)
	lanes := openLanes(t, nets, 0, []int{0, 1})
	card, gen, _ := lanes[0].Coordination.Acquire()
	k := uint64(0)
	step := func() {
		k++
		for i, l := range lanes {
			l.Board.Mark(card, gen)
			l.Shared.Advance(transport.In, k)
			l.Shared.Counter(1-i, transport.In)
			nets[i].Err()
			b := nets[i].Bell()
			b.Sleep(b.Arm(), time.Nanosecond)
		}
		for _, l := range lanes {
			if len(l.Board.Next()) != 1 {
				t.Fatal("no record")
			}
		}
	}
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

func TestGroupsAcrossRanks(t *testing.T) {
	nets := openWorld(t, 3, nil)
	lanes := openLanes(t, nets, 0, []int{0, 1, 2})
	group := make([]transport.Mark, 3)
	for i := range group {
		var ok bool
		if group[i].Card, group[i].Gen, ok = lanes[0].Coordination.Acquire(); !ok {
			t.Fatal("no card")
		}
	}
	ticket := nets[0].Bell().Arm()
	for m, l := range lanes {
		if l.Board.Next() != nil {
			t.Fatalf("published before member %d has marked", m)
		}
		if !l.Board.MarkGroup(group) {
			t.Fatalf("member %d: stale", m)
		}
	}
	began := time.Now()
	nets[0].Bell().Sleep(ticket, 20*time.Second)
	if time.Since(began) > 10*time.Second {
		t.Error("the last mark did not ring")
	}
	for m, l := range lanes {
		r := l.Board.Next()
		if len(r) != 3 || r[0].Card != group[0].Card || r[1].Card != group[1].Card || r[2].Card != group[2].Card {
			t.Errorf("member %d got %v", m, r)
		}
	}
	lanes[0].Coordination.Retire(group[1].Card)
	if lanes[2].Board.MarkGroup(group) {
		t.Error("a group with a retired card was taken")
	}
	if marked := lanes[0].Coordination.Marked(group[0].Card); len(marked) > 0 {
		t.Errorf("of the stale group, card %d is marked by %v", group[0].Card, marked)
	}
}

// All lanes of a segment have the same size, which suffices for any members.
func TestLaneHasRoomForAnyMembers(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 5, 7, 8, 13, 31, 32, 33, 64, 127, 200} {
		c := Config{Size: size, Cards: 64}
		for n := 1; n <= size; n++ {
			if need := layoutOf(board.Bytes(boardConfig(n, c.Cards)), n).size; need > laneBytes(c) {
				t.Fatalf("a lane of %d members needs %d bytes, that of %d has %d", n, need, size, laneBytes(c))
			}
			if b := chunkBytes(n); b < leastTile || b%(64*n) != 0 {
				t.Fatalf("%d members have buffers of %d bytes", n, b)
			}
		}
	}
}

package tcp

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/property"
)

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	networks := world(t, 2, nil)
	lanes := openAll(t, networks, 0)
	card, gen, _ := lanes[0].Coordination.Acquire()
	a, b := make([]byte, 100_000), make([]byte, 100_000)
	step := func() {
		lanes[0].Comm.Send(1, a)
		lanes[1].Comm.Recv(0, b)
		mark(lanes[0], card, gen)
		mark(lanes[1], card, gen)
		for m, n := range networks {
			until(t, n, func() bool { return nextBatch(lanes[m]) != nil })
			until(t, n, func() bool { return lanes[m].Comm.Sent(1-m) && lanes[m].Comm.Received(1-m) })
		}
	}
	// This counts readers and writers, too. A stray allocation of the runtime is less than one per step.
	if n := testing.AllocsPerRun(300, step); n >= 1 {
		t.Errorf("%v allocations per step", n)
	}
}

func TestDescriptorsAreTracked(t *testing.T) {
	var mu sync.Mutex
	open := map[int]int{}
	networks := world(t, 2, func(_ int, c *Config) {
		c.TrackFD = func(fd int, o bool) {
			mu.Lock()
			defer mu.Unlock()
			if o {
				open[fd]++
			} else {
				open[fd]--
			}
			if open[fd] < 0 || open[fd] > 1 {
				t.Errorf("descriptor %d is open %d times", fd, open[fd])
			}
		}
	})
	lanes := openAll(t, networks, 0)
	lanes[0].Comm.Send(1, nil)
	eventually(t, func() bool { return connections(networks[1]) == 1 })
	count := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, o := range open {
			n += o
		}
		return n
	}
	want := 2*ownDescriptors(networks[0]) + 2             // two ends
	eventually(t, func() bool { return count() == want }) // an end has two descriptors for a moment
	closeAll(networks)
	if n := count(); n != 0 {
		t.Errorf("%d descriptors are left open", n)
	}
}

func TestABellIsNeverMissed(t *testing.T) {
	b := world(t, 1, nil)[0].bell
	const rounds = 2000
	turn := make(chan struct{})
	go func() {
		for range rounds {
			<-turn
			b.Ring()
		}
	}()
	for range rounds {
		ticket := b.Arm()
		turn <- struct{}{}
		start := time.Now()
		b.Sleep(ticket, patience)
		if time.Since(start) > patience/2 {
			t.Fatal("a ring after Arm was lost")
		}
	}
	if n := testing.AllocsPerRun(100, func() { b.Sleep(b.Arm(), time.Microsecond) }); n != 0 {
		t.Errorf("%v allocations per Sleep", n)
	}
	// A token left from a ring during which nobody slept must not cut a sleep short.
	b.Arm()
	b.Ring()
	start := time.Now()
	b.Sleep(b.Arm(), 20*time.Millisecond)
	if d := time.Since(start); d < 20*time.Millisecond {
		t.Errorf("woke up after %v without a ring", d)
	}
}

func TestHeadersAndHellos(t *testing.T) {
	property.Check(t, func(t *property.T) {
		u32 := func(label string) uint32 { return uint32(t.Int(label, 0, math.MaxUint32)) }
		h := header{message(t.Int("kind", 1, 5)), u32("sequence"), t.Uint64("length")}
		if h.kind == messageGoodbye || h.kind == messageLaneClosed {
			h.length = 0
		}
		var p [headerSize]byte
		h.put(p[:])
		if got, err := parseHeader(p[:]); err != nil || got != h {
			t.Fatalf("%+v, %v; want %+v", got, err, h)
		}
		hi := hello{t.Uint64("generation"), int64(t.Uint64("lane")), u32("from"), u32("to"),
			u32("size"), u32("cards"), u32("incarnation"), u32("streams"), u32("early"),
			stream(t.Int("stream", 0, math.MaxUint8))}
		q := hi.encode()
		if got, err := parseHello(q); err != nil || got != hi {
			t.Fatalf("%+v, %v; want %+v", got, err, hi)
		}
		if _, err := parseHello(q[:t.Int("cut", 0, len(q)-1)]); err == nil {
			t.Fatal("a cut hello passes")
		}
	})
}

package tcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport/treeboard"
)

// recorder is a board that keeps all frames that it receives.
type recorder struct {
	treeboard.Board
	mu     sync.Mutex
	frames [][]byte
}

func (r *recorder) Receive(_ int, frame []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frames = append(r.frames, bytes.Clone(frame))
	return nil
}

func (r *recorder) received() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.frames)
}

// record replaces a lane's board, which has received nothing yet, by a recorder.
func record(l *lane) *recorder {
	r := &recorder{Board: l.board}
	l.board = r
	return r
}

// A frame that comes in two pieces, cut at any byte, is one frame, whether the driver or the keeper takes it.
func TestAFrameCutAnywhere(t *testing.T) {
	for _, driven := range []bool{true, false} {
		networks := world(t, 2, nil)
		openAll(t, networks, 0)
		l := networks[1].lanes[0]
		r := record(l)
		c := dialAs(t, networks[0], 0, 1, control)
		payload := "the payload of a frame"
		for cut := range headerSize + len(payload) + 1 {
			message := rawMessage(messageBoard, uint32(cut), uint64(len(payload)), payload)
			for _, p := range [][]byte{message[:cut], message[cut:]} {
				if len(p) > 0 {
					c.Write(p)
				}
				if driven {
					l.takeFrames()
				}
			}
			if driven {
				until(t, networks[1], func() bool { l.takeFrames(); return len(r.received()) > cut })
			} else {
				eventually(t, func() bool { return len(r.received()) > cut })
			}
			if got := r.received(); len(got) != cut+1 || string(got[cut]) != payload {
				t.Fatalf("cut at %d, driven %v: %d frames, the last is %q", cut, driven, len(got), got[len(got)-1])
			}
		}
	}
}

// Frames for which the sockets have no room wait in the queue, whole or in part, and
// come in order.
func TestFramesBeyondTheSocketsBuffers(t *testing.T) {
	networks := world(t, 2, nil)
	openAll(t, networks, 0)
	from, to := networks[0].lanes[0], networks[1].lanes[0]
	r := record(to)
	(*lanePipe)(from).Send(1, []byte("first"))
	eventually(t, func() bool { return len(r.received()) == 1 })
	in := &to.controlIn[0]
	in.mu.Lock() // nobody takes frames now
	rng := rand.New(rand.NewPCG(1, 2))
	want := [][]byte{[]byte("first")}
	for total := 0; total < treeboard.QueueLimit(8, 0)*3/4; {
		frame := pattern(1+rng.IntN(30_000), byte(rng.Uint32()))
		(*lanePipe)(from).Send(1, frame)
		if rng.IntN(3) > 0 { // otherwise it goes together with the next one
			(*lanePipe)(from).Flush()
		}
		want = append(want, frame)
		total += len(frame)
	}
	(*lanePipe)(from).Flush()
	in.mu.Unlock()
	eventually(t, func() bool { return len(r.received()) >= len(want) })
	for i, frame := range r.received() {
		if !bytes.Equal(frame, want[i]) {
			t.Fatalf("frame %d is another one", i)
		}
	}
	for _, n := range networks {
		if err := n.Err(); err != nil {
			t.Error(err)
		}
	}
}

// A lane that is closed while a frame has been written in part ends in good order: with the rest of that frame, and
// then messageLaneClosed.
func TestClosingALaneWithinAFrame(t *testing.T) {
	networks := quiet(t, 2)
	openAll(t, networks, 0)
	openAll(t, networks, 5)
	from, to := networks[0].lanes[5], networks[1].lanes[5]
	r := record(to)
	(*lanePipe)(from).Send(1, []byte("first"))
	eventually(t, func() bool { return len(r.received()) == 1 })
	in := &to.controlIn[0]
	in.mu.Lock()
	out := &from.controlOut[1]
	for i := 0; ; i++ {
		out.mu.Lock()
		full := len(out.queue) > 0
		out.mu.Unlock()
		if full || i == 10_000 {
			break
		}
		(*lanePipe)(from).Send(1, pattern(30_000, byte(i)))
		(*lanePipe)(from).Flush()
	}
	mustClose(t, networks[0], 5)
	in.mu.Unlock()
	eventually(t, func() bool { return connections(networks[0]) == 0 || networks[1].Err() != nil })
	for i, frame := range r.received()[1:] {
		if !bytes.Equal(frame, pattern(30_000, byte(i))) {
			t.Errorf("frame %d is another one", i)
		}
	}
	mustClose(t, networks[1], 5)
	noConnections(t, networks)
}

// A rank that does not drive hears of frames: before it has ever driven, and some time after it has stopped. As long as
// it drives, Wake is not called for it.
func TestFramesForWhoDoesNotDrive(t *testing.T) {
	var wakes atomic.Int32
	networks := world(t, 2, func(rank int, c *Config) {
		if rank == 0 {
			c.Wake = func() { wakes.Add(1) }
		}
	})
	lanes := openAll(t, networks, 0)
	requests := 0
	ask := func() {
		requests++
		post(lanes[1], []byte{byte(requests)})
	}
	heard := 0
	hear := func() bool {
		lanes[0].Poller.Poll()
		lanes[0].Coordination.TakeRequests(func([]int, []byte) { heard++ })
		return heard == requests
	}
	for range 3 {
		before := wakes.Load()
		ask()
		eventually(t, func() bool { return wakes.Load() > before })
		for range 20 {
			until(t, networks[0], hear)
			ask()
		}
		until(t, networks[0], hear)
	}
}

// Ranks mark, send and receive at random, and their drivers sleep and pause at random. They never wait for a wake-up
// that does not come; until panics if they do.
func TestNoWakeUpIsLost(t *testing.T) {
	seed := rand.Uint64()
	defer func() { t.Logf("seed %d", seed) }()
	rounds := 150
	if raceEnabled || testing.Short() {
		rounds = 40
	}
	for size := 2; size <= 4; size++ {
		t.Run(fmt.Sprintf("%d ranks", size), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS([]int{1, 2, 8}[(uint64(size)+seed)%3]))
			networks := world(t, size, func(_ int, c *Config) { c.Streams = 1 + size%2 })
			lanes := openAll(t, networks, 0)
			card, gen, _ := lanes[0].Coordination.Acquire()
			plan := rand.New(rand.NewPCG(seed, uint64(size)))
			lengths := make([]int, rounds)
			for i := range lengths {
				lengths[i] = plan.IntN(1 << plan.IntN(20))
			}
			var g sync.WaitGroup
			for me, n := range networks {
				g.Go(func() {
					defer func() {
						if recover() != nil {
							n.Abort(fmt.Errorf("rank %d has waited in vain", me))
						}
					}()
					rng := rand.New(rand.NewPCG(seed, uint64(size*10+me)))
					lane, comm := lanes[me], lanes[me].Comm
					in, out := make([]byte, 1<<20), make([]byte, 1<<20)
					next, prev := (me+1)%size, (me+size-1)%size
					for i, length := range lengths {
						stay(rng)
						lane.Board.Mark(card, gen)
						until(t, n, func() bool { stay(rng); return nextBatch(lane) != nil })
						binary.LittleEndian.PutUint32(out, uint32(i*size+me))
						length += 4
						stay(rng)
						comm.Recv(prev, in[:length])
						comm.Send(next, out[:length])
						until(t, n, func() bool { return comm.Received(prev) && comm.Sent(next) })
						if got := int(binary.LittleEndian.Uint32(in)); got != i*size+prev {
							t.Errorf("rank %d, round %d: message %d", me, i, got)
							return
						}
					}
				})
			}
			g.Wait()
		})
	}
}

// stay keeps a driver from polling for a random time, mostly none.
func stay(rng *rand.Rand) {
	switch rng.IntN(40) {
	case 0:
		time.Sleep(time.Duration(rng.IntN(6_000)) * time.Microsecond)
	case 1, 2, 3:
		for range rng.IntN(20_000) {
		}
	}
}

// Frames go out in the order in which they were sent, whichever goroutine flushes.
func TestFlushesKeepTheOrder(t *testing.T) {
	networks := world(t, 2, nil)
	openAll(t, networks, 0)
	from, to := networks[0].lanes[0], networks[1].lanes[0]
	r := record(to)
	pipe := (*lanePipe)(from)
	pipe.Send(1, []byte("first"))
	eventually(t, func() bool { return len(r.received()) == 1 })
	const senders, each = 4, 300
	var work sync.Mutex // like a leader's
	next := uint32(0)
	var g sync.WaitGroup
	for range senders {
		g.Go(func() {
			for range each {
				work.Lock()
				frame := binary.LittleEndian.AppendUint32(nil, next)
				next++
				pipe.Send(1, frame)
				work.Unlock()
				pipe.Flush()
			}
		})
	}
	g.Wait()
	eventually(t, func() bool { return len(r.received()) == 1+senders*each })
	for i, frame := range r.received()[1:] {
		if got := binary.LittleEndian.Uint32(frame); got != uint32(i) {
			t.Fatalf("frame %d is number %d", i, got)
		}
	}
}

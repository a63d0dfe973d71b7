package collective

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// The links of any number of hosts and members are measured, before and after other operations, and all members learn
// the same.
func TestMeasureLinks(t *testing.T) {
	for _, hosts := range [][][]int{{{0}, {1}}, {{0}, {1}, {2}}, {{0}, {1}, {2}, {3}, {4}},
		{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}, {{0, 1}, {2, 3}}, {{0, 2}, {1}}, {{0, 1, 2}, {3}, {4, 5}, {6}}} {
		for _, o := range []Options{{}, {Deterministic: true}, {Allreduce: Flat}} {
			t.Run(fmt.Sprint(hosts, o), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(len(hosts))))
				size := 0
				for _, ranks := range hosts {
					size += len(ranks)
				}
				g := newGroup(t, size, inproc.Options{Hosts: hosts}, o)
				n := g.lanes[0].Hosts()
				if n != len(hosts) {
					t.Fatalf("%d hosts", n)
				}
				got := make([][]Link, size)
				check := func(r int) error {
					for h, k := range got[r] {
						if k.Latency <= 0 || k.Rate <= 0 {
							return fmt.Errorf("host %d has %v", h, k)
						}
					}
					return nil
				}
				measure := job{"measure links", func(l *Lane) Op {
					got[l.rank] = make([]Link, n)
					op, _ := l.MeasureLinks(got[l.rank])
					return op
				}, check}
				sums := make([][]byte, size)
				sum := job{"sum", func(l *Lane) Op {
					sums[l.rank] = make([]byte, 2000)
					sums[l.rank][0] = 1
					return l.Allreduce(tensor.Uint8, tensor.Sum, sums[l.rank], sums[l.rank], 1)
				}, func(r int) error {
					if int(sums[r][0]) != size {
						return fmt.Errorf("rank %d has the sum %d", r, sums[r][0])
					}
					return nil
				}}
				g.runScheduled(t, rng, []job{measure, sum, measure, sum})
				for r := range got {
					if !slices.Equal(got[r], got[0]) {
						t.Errorf("rank %d has %v, rank 0 %v", r, got[r], got[0])
					}
				}
			})
		}
	}
}

// Every link that an allreduce uses is measured, and both ends agree that they are peers.
func TestLinkPeers(t *testing.T) {
	for size := 2; size <= 20; size++ {
		for r := range size {
			peers := linkPeers(r, size)
			if !slices.Contains(peers, (r+1)%size) || slices.Contains(peers, r) {
				t.Errorf("%d of %d: %v", r, size, peers)
			}
			for _, p := range peers {
				if !slices.Contains(linkPeers(p, size), r) {
					t.Errorf("%d of %d has the peer %d, which does not know it", r, size, p)
				}
			}
		}
	}
	if got := fmt.Sprint(linkPeers(0, 8), linkPeers(5, 8), linkPeers(0, 5), linkPeers(3, 5)); got !=
		"[1 2 4 7] [1 4 6 7] [1 4] [1 2 4]" {
		t.Error(got)
	}
}

// farComm delivers what it has received only after a delay, at a rate.
type farComm struct {
	transport.Comm
	link Link
	mu   *sync.Mutex
	free map[[2]int]time.Time // by sender and receiver: when its link is free
	due  []time.Time          // by sender: when what was received is there
	held []int                // by sender: how much is posted
}

func (f *farComm) Recv(from int, p []byte) {
	f.held[from], f.due[from] = len(p), time.Time{}
	f.Comm.Recv(from, p)
}

func (f *farComm) Received(from int) bool {
	if !f.Comm.Received(from) {
		return false
	}
	if f.held[from] == 0 {
		return true
	}
	if f.due[from].IsZero() {
		f.mu.Lock()
		at := [2]int{from, f.Rank()}
		start := time.Now()
		if free := f.free[at]; free.After(start) {
			start = free
		}
		if f.link.Rate > 0 {
			start = start.Add(time.Duration(float64(f.held[from]) / float64(f.link.Rate) * 1e9))
		}
		f.free[at] = start
		f.mu.Unlock()
		f.due[from] = start
		if f.held[from] == linkMessage {
			f.due[from] = start.Add(f.link.Latency) // of a piece, only the time between two matters
		}
	}
	if time.Now().Before(f.due[from]) {
		return false
	}
	f.held[from] = 0
	return true
}

// The measured latencies and rates are those of the simulated links. The rate of a link that is too long for a stream
// stays unknown, and a few trips show that it is too long.
func TestMeasuredLinksAreThoseThatThereAre(t *testing.T) {
	for _, link := range []Link{{2 * time.Millisecond, 20e6}, {200 * time.Microsecond, 40e6}, {15e6, 1e6}} {
		g := newGroup(t, 4, inproc.Options{Hosts: [][]int{{0}, {1}, {2}, {3}}})
		var mu sync.Mutex
		free := map[[2]int]time.Time{}
		got := make([][]Link, 4)
		begin := time.Now()
		var wg sync.WaitGroup
		for r, l := range g.lanes {
			l.wrap(&farComm{l.comm, link, &mu, free, make([]time.Time, 4), make([]int, 4)})
			wg.Go(func() {
				got[r] = make([]Link, 4)
				for op, _ := l.MeasureLinks(got[r]); ; time.Sleep(20 * time.Microsecond) {
					if done, err := op.Advance(); done {
						if err != nil {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		wg.Wait()
		took := time.Since(begin)
		k := Slowest(got[2], []int{0, 1, 2, 3})
		if far := link.Latency > mostTrip/2; far {
			if k.Rate != 0 || k.Latency < link.Latency {
				t.Errorf("%v is measured as %v in %v", link, k, took)
			}
			continue
		}
		if k.Latency < link.Latency || k.Latency > 2*link.Latency+20*time.Millisecond || k.Rate < link.Rate/8 ||
			k.Rate > link.Rate*3/2 {
			t.Errorf("%v is measured as %v in %v", link, k, took)
		}
	}
}

// A member that waits can say for whom, until all have answered.
func TestAwaitedLinks(t *testing.T) {
	g := newGroup(t, 5, inproc.Options{Hosts: [][]int{{0, 1}, {2, 3}, {4}}})
	var ops [5]Op
	var awaited [5]func() []int
	over := 0
	turn := func(ranks ...int) {
		for _, r := range ranks {
			if ops[r] == nil {
				ops[r], awaited[r] = g.lanes[r].MeasureLinks(make([]Link, 3))
			}
			if ops[r] == &g.lanes[r].ended {
				continue
			}
			done, err := ops[r].Advance()
			if err != nil {
				t.Fatal(err)
			}
			if done {
				ops[r] = &g.lanes[r].ended
				over++
			}
		}
	}
	for range 20 {
		turn(0, 1, 4)
		time.Sleep(tripsTime / 10)
	}
	if got := fmt.Sprint(awaited[0](), awaited[1](), awaited[4]()); got != "[2] [] [2]" {
		t.Error(got)
	}
	for over < 5 {
		turn(0, 1, 2, 3, 4)
	}
	if got := fmt.Sprint(awaited[0](), awaited[1](), awaited[4]()); got != "[] [] []" {
		t.Error(got)
	}
}

func TestSlowest(t *testing.T) {
	links := []Link{{5, 100}, {7, 300}, {6, 50}, {1, 0}}
	for _, c := range []struct {
		hosts []int
		want  Link
	}{{[]int{0, 1}, Link{7, 100}}, {[]int{0, 2}, Link{6, 50}}, {[]int{0, 3}, Link{5, 0}}, {nil, Link{}}} {
		if got := Slowest(links, c.hosts); got != c.want {
			t.Errorf("%v: %v, want %v", c.hosts, got, c.want)
		}
	}
}

func TestMeasureLinksRefuses(t *testing.T) {
	g := newGroup(t, 2, inproc.Options{Hosts: [][]int{{0}, {1}}})
	shared := newGroup(t, 2, inproc.Options{Shared: true})
	for lane, hosts := range map[*Lane]int{g.lanes[0]: 3, shared.lanes[0]: 1} {
		op, awaited := lane.MeasureLinks(make([]Link, hosts))
		if done, err := op.Advance(); !done || err == nil || awaited() != nil {
			t.Error("it is begun")
		}
	}
}

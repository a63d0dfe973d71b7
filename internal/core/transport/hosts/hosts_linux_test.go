package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/shm"
	"github.com/gorovod/gorovod/internal/core/transport/tcp"
	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience bounds every wait of a test; only a test that hangs uses it up.
const patience = 20 * time.Second

var generation atomic.Uint64

// world makes the networks of all ranks, on simulated hosts in this process.
func world(t *testing.T, hosts ...[]int) []*Network {
	t.Helper()
	gen := generation.Add(1)
	size := 0
	for _, ranks := range hosts {
		size += len(ranks)
	}
	listeners := make([]net.Listener, size)
	for r := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[r] = l
	}
	networks, errs := make([]*Network, size), make([]error, size)
	var wg sync.WaitGroup
	for _, ranks := range hosts {
		for place, r := range ranks {
			wg.Go(func() {
				c := Config{Hosts: hosts, TCP: tcp.Config{Rank: r, Size: size, Key: []byte("secret"), Generation: gen,
					Listener: listeners[r], Cards: 8,
					Addrs: func(rank int) []string { return []string{listeners[rank].Addr().String()} }}}
				if len(ranks) > 1 {
					c.Local, errs[r] = shm.Open(t.Context(), shm.Config{Rank: place, Size: len(ranks), Ranks: ranks,
						Key: []byte("secret"), Job: fmt.Sprint(t.Name(), os.Getpid()), Generation: gen,
						Timeout: patience, Cards: 8, Alarm: true, BoardBytes: BoardBytes(len(ranks), 8, 0)})
				}
				if errs[r] == nil {
					networks[r], errs[r] = New(c)
				}
			})
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(networks) })
	return networks
}

func closeAll(networks []*Network) {
	var wg sync.WaitGroup
	for _, n := range networks {
		wg.Go(func() { n.Close() })
	}
	wg.Wait()
}

// open opens a lane on its members; the result is by member.
func open(t *testing.T, networks []*Network, id int, incarnation uint32, members ...int) []*transport.Lane {
	t.Helper()
	lanes, errs := make([]*transport.Lane, len(members)), make([]error, len(members))
	var wg sync.WaitGroup
	for m, r := range members {
		wg.Go(func() { lanes[m], errs[m] = networks[r].OpenLane(id, incarnation, members) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return lanes
}

// until drives a rank as an engine does, and sleeps between its looks.
func until(t *testing.T, n *Network, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ticket := n.Bell().Arm()
		if n.Poll(); done() {
			n.Bell().Disarm()
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("rank %d: %s: nothing comes; %v", n.rank, what, n.Err())
			return
		}
		n.Bell().Sleep(ticket, patience)
	}
}

// shape describes what a lane offers.
func shape(l *transport.Lane) string {
	s := fmt.Sprint(l.Hosts)
	if l.Comm != nil {
		s += fmt.Sprintf(" comm %d of %d", l.Comm.Rank(), l.Comm.Size())
	}
	if l.Shared != nil {
		s += fmt.Sprintf(" shared %d of %d", l.Shared.Rank(), l.Shared.Size())
	}
	if l.Coordination != nil {
		s += " coordination"
	}
	if l.Poller != nil {
		s += " turns"
	}
	return s
}

func TestWhatLanesOffer(t *testing.T) {
	networks := world(t, []int{0, 3, 4}, []int{1, 5}, []int{2})
	for id, c := range []struct {
		members []int
		want    []string
	}{
		{[]int{0, 1, 2, 3, 4, 5}, []string{"[[0 3 4] [1 5] [2]] comm 0 of 6 shared 0 of 3 coordination turns",
			"[[0 3 4] [1 5] [2]] comm 1 of 6 shared 0 of 2 turns", "[[0 3 4] [1 5] [2]] comm 2 of 6 turns",
			"[[0 3 4] [1 5] [2]] comm 3 of 6 shared 1 of 3", "[[0 3 4] [1 5] [2]] comm 4 of 6 shared 2 of 3",
			"[[0 3 4] [1 5] [2]] comm 5 of 6 shared 1 of 2"}},
		{[]int{0, 3, 4}, []string{"[] shared 0 of 3 coordination", "[] shared 1 of 3", "[] shared 2 of 3"}},
		{[]int{1, 3, 4}, []string{"[[0] [1 2]] comm 0 of 3 coordination turns",
			"[[0] [1 2]] comm 1 of 3 shared 0 of 2 turns",
			"[[0] [1 2]] comm 2 of 3 shared 1 of 2"}},
		{[]int{0, 1, 2}, []string{"[[0] [1] [2]] comm 0 of 3 coordination turns",
			"[[0] [1] [2]] comm 1 of 3 turns", "[[0] [1] [2]] comm 2 of 3 turns"}},
		{[]int{3}, []string{"[] shared 0 of 1 coordination"}},
		{[]int{2}, []string{"[[0]] comm 0 of 1 coordination turns"}},
	} {
		var got []string
		for _, l := range open(t, networks, id, 1, c.members...) {
			got = append(got, shape(l))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("members %v: %q, want %q", c.members, got, c.want)
		}
	}
}

// Events in the segment and events over TCP wake a driver that sleeps.
func TestOneBellForBoth(t *testing.T) {
	networks := world(t, []int{0, 1}, []int{2, 3})
	lanes := open(t, networks, 0, 1, 0, 1, 2, 3)
	const rounds = 200
	var wg sync.WaitGroup
	for m, l := range lanes {
		wg.Go(func() {
			// A token goes round: 0 and 2 pass it on over TCP, 1 and 3 through memory.
			n, in, out := networks[m], make([]byte, 1), []byte{byte(m)}
			for k := range uint64(rounds) {
				switch m {
				case 1, 3:
					until(t, n, "the neighbour", func() bool { return l.Shared.Counter(0, transport.Mid) > k })
					l.Comm.Send((m+1)%4, out)
					until(t, n, "the token's leaving", func() bool { return l.Comm.Sent((m + 1) % 4) })
				default:
					if m != 0 || k > 0 {
						l.Comm.Recv((m+3)%4, in)
						until(t, n, "the token", func() bool { return l.Comm.Received((m + 3) % 4) })
					}
					l.Shared.Lead(transport.Mid, k+1)
				}
			}
			if m == 0 {
				l.Comm.Recv(3, in)
				until(t, n, "the last token", func() bool { return l.Comm.Received(3) })
			}
		})
	}
	wg.Wait()
}

// An abort reaches ranks of other hosts, and there also ranks that only share memory with a rank that heard of it. It
// reads the same everywhere.
func TestAbortCrosses(t *testing.T) {
	for origin := range 5 {
		networks := world(t, []int{0, 1}, []int{2, 3, 4})
		open(t, networks, 0, 1, 0, 1, 2, 3, 4)
		networks[origin].Abort(errors.New("out of paper"))
		networks[origin].Abort(errors.New("too late"))
		var wg sync.WaitGroup
		for r, n := range networks {
			wg.Go(func() {
				until(t, n, "the abort", func() bool { return n.Err() != nil })
				want := fmt.Sprintf("out of paper (reported by rank %d)", origin)
				if r == origin {
					want = "out of paper"
				}
				if err := n.Err(); err == nil || err.Error() != want {
					t.Errorf("rank %d of an abort by %d: %v", r, origin, err)
				}
			})
		}
		wg.Wait()
		closeAll(networks)
	}
}

// Err tells no other rank. Only Poll and Close take an abort from the segment to the connections, or back.
func TestErrTellsNobody(t *testing.T) {
	ways := map[string]func(*Network){"poll": (*Network).Poll, "close": func(n *Network) { n.Close() }}
	for name, spread := range ways {
		for _, side := range []string{"segment", "connections"} {
			networks := world(t, []int{0, 1}, []int{2})
			open(t, networks, 0, 1, 0, 1, 2)
			n, cause := networks[0], errors.New("out of paper")
			told := n.tcp.Err
			if side == "segment" {
				n.local.Abort(cause)
			} else {
				n.tcp.Abort(cause)
				told = n.local.Err
			}
			for range 10 {
				if err := n.Err(); err != cause {
					t.Fatalf("%s: %v", side, err)
				}
			}
			if err := told(); err != nil {
				t.Errorf("%s: asking for the error has told the other network: %v", side, err)
			}
			if spread(n); told() != cause && name == "poll" || told() == nil {
				t.Errorf("%s: after %s the other network has %v", side, name, told())
			}
			closeAll(networks)
		}
	}
}

// An id can be used again, by other members and in another form. Mark and Post may be called while the lane is closed.
func TestCloseLane(t *testing.T) {
	networks := world(t, []int{0, 1}, []int{2, 3})
	open(t, networks, 0, 1, 0, 1, 2, 3)
	for incarnation, members := range [][]int{{0, 1, 2, 3}, {0, 1}, {1, 2, 3}, {2, 3}, {0, 1, 2, 3}} {
		lanes := open(t, networks, 3, uint32(incarnation+1), members...)
		ctx, stop := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		for _, l := range lanes {
			busy.Go(func() {
				for gen := uint32(1); ctx.Err() == nil; gen++ {
					l.Board.Post([]byte("please"))
					l.Board.Mark(1, gen) // no member marks a generation twice
				}
			})
		}
		var wg sync.WaitGroup
		for _, r := range members {
			wg.Go(func() {
				if err := networks[r].CloseLane(3); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		stop()
		busy.Wait()
		if err := networks[members[0]].CloseLane(3); err == nil {
			t.Error("closed twice")
		}
	}
	for _, n := range networks {
		if err := n.Err(); err != nil {
			t.Errorf("rank %d: %v", n.rank, err)
		}
	}
}

// Mark and Post may be called while the network is closed, and afterwards.
func TestCloseUnderUse(t *testing.T) {
	networks := world(t, []int{0, 1}, []int{2})
	lanes := open(t, networks, 0, 1, 0, 1, 2)
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for _, l := range lanes {
		busy.Go(func() {
			for gen := uint32(1); ctx.Err() == nil; gen++ {
				l.Board.Post([]byte("please"))
				l.Board.Mark(1, gen)
			}
		})
	}
	closeAll(networks)
	stop()
	busy.Wait()
	for _, n := range networks {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		n.Bell().Ring()
		n.Abort(errors.New("late"))
	}
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	for _, hosts := range [][][]int{{{0}}, {{0}, {1}, {2}}, {{0, 1}}, {{0}, {0}}, {{1, 0}}, nil} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n, err := New(Config{Hosts: hosts, TCP: tcp.Config{Rank: 0, Size: 2, Key: []byte("secret"), Listener: l,
			Addrs: func(int) []string { return nil }}})
		if err == nil || !strings.Contains(err.Error(), "hosts") {
			t.Errorf("%v: %v", hosts, err)
		}
		if n != nil {
			n.Close()
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v: the listener is left open: %v", hosts, err)
		}
	}
	networks := world(t, []int{0, 1}, []int{2})
	if _, err := networks[0].OpenLane(1, 1, []int{0, 3}); err == nil {
		t.Error("a lane with a rank that there is not")
	}
	if !reflect.DeepEqual(networks[0].hosts, []int{1, 1, 2}) {
		t.Errorf("hosts %v", networks[0].hosts)
	}
}

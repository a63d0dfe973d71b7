package collective

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/internal/core/transport/shm"
	"github.com/gorovod/gorovod/internal/core/transport/tcp"
)

// The transports that jobs use give the same results as inproc, with several buffers and pieces of their sizes.
func TestRealTransports(t *testing.T) {
	count, large := 100, 1_000_003
	if raceDetector {
		count, large = 20, 50_003
	}
	for name, open := range map[string]func(t *testing.T, size int) []transport.Network{
		"shm": openSharedMemory,
		"tcp": openConnections,
	} {
		for _, size := range []int{2, 3, 5} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				rng := random(t)
				g := openGroup(t, open(t, size))
				shared := g.lanes[0].shared != nil
				jobs := mixture(rng, inproc.Options{Shared: shared}, size, count)
				for _, sizes := range matrices(rng, size, large) {
					jobs = append(jobs, alltoallJob(rng, sizes))
				}
				for _, a := range scatterAlgorithms(shared, size) {
					for _, p := range parts(rng, size, large/5) {
						jobs = append(jobs, reducescatterJob(rng, a, tensor.Float32, tensor.Sum, p))
					}
				}
				jobs = append(jobs, adasumJob(rng, size, tensor.Float32, []int{large / 20, 5, 0, large / 10}))
				g.runConcurrently(t, jobs)
			})
		}
	}
}

// openGroup opens a lane of all ranks, and closes everything at the end of the test.
func openGroup(t *testing.T, networks []transport.Network) *group {
	t.Helper()
	g := &group{networks: networks, lanes: make([]*Lane, len(networks))}
	t.Cleanup(func() {
		for _, n := range networks {
			if err := n.Err(); err != nil {
				t.Errorf("network: %v", err)
			}
		}
		each(t, len(networks), func(r int) error { return networks[r].Close() })
	})
	members := make([]int, len(networks))
	for r := range members {
		members[r] = r
	}
	each(t, len(networks), func(r int) error {
		l, err := networks[r].OpenLane(0, 0, members)
		if err == nil {
			g.lanes[r] = NewLane(l, Options{})
		}
		return err
	})
	return g
}

// each runs f for all ranks at the same time.
func each(t *testing.T, size int, f func(rank int) error) {
	t.Helper()
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() { errs[r] = f(r) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func openSharedMemory(t *testing.T, size int) []transport.Network {
	networks := make([]transport.Network, size)
	each(t, size, func(r int) (err error) {
		networks[r], err = shm.Open(t.Context(), shm.Config{
			Rank: r, Size: size, Key: []byte("secret"), Job: fmt.Sprint(t.Name(), os.Getpid()),
			Timeout: 20 * time.Second, Cards: 64,
		})
		return err
	})
	return networks
}

func openConnections(t *testing.T, size int) []transport.Network {
	listeners := make([]net.Listener, size)
	for r := range listeners {
		var err error
		if listeners[r], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	networks := make([]transport.Network, size)
	each(t, size, func(r int) (err error) {
		networks[r], err = tcp.New(tcp.Config{
			Rank: r, Size: size, Key: []byte("secret"), Listener: listeners[r], Timeout: 20 * time.Second,
			Addrs: func(rank int) []string { return []string{listeners[rank].Addr().String()} },
		})
		return err
	})
	return networks
}

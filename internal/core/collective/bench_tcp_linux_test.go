package collective

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/tcp"
)

// BenchmarkAllreduceTCP runs each of the allreduces over Comm on connections over the loopback interface: the model's
// constants come from it, see model.go.
func BenchmarkAllreduceTCP(b *testing.B) {
	for _, size := range []int{2, 4, 8} {
		for n := 4; n <= 4<<20; n *= 4 {
			for _, a := range commAlgorithms[1:] {
				b.Run(fmt.Sprintf("members=%d/bytes=%d/%s", size, n, a.name), func(b *testing.B) {
					benchmarkTCP(b, size, n, a)
				})
			}
		}
	}
}

func benchmarkTCP(b *testing.B, size, n int, a algorithm) {
	listeners := make([]net.Listener, size)
	for r := range listeners {
		var err error
		if listeners[r], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			b.Fatal(err)
		}
	}
	members := make([]int, size)
	networks, lanes := make([]*tcp.Network, size), make([]*Lane, size)
	for r := range members {
		members[r] = r
	}
	for r := range networks {
		var err error
		if networks[r], err = tcp.New(tcp.Config{
			Rank: r, Size: size, Key: []byte("secret"), Listener: listeners[r], Timeout: 20 * time.Second,
			Addrs: func(rank int) []string { return []string{listeners[rank].Addr().String()} },
		}); err != nil {
			b.Fatal(err)
		}
		defer networks[r].Close()
		l, err := networks[r].OpenLane(0, 0, members)
		if err != nil {
			b.Fatal(err)
		}
		lanes[r] = NewLane(l, Options{})
	}
	run := func(times int) {
		var wg sync.WaitGroup
		for r, l := range lanes {
			wg.Go(func() {
				data := make([]byte, n)
				for range times {
					drive(a.start(l, reduction{dt: tensor.Float32, op: tensor.Sum, in: data, out: data, scale: 1,
						wire: tensor.WireAsIs}), networks[r].Bell(), size > 2)
				}
			})
		}
		wg.Wait()
	}
	run(3)
	b.SetBytes(int64(n))
	b.ResetTimer()
	run(b.N)
}

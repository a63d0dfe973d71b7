package world

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/test/netns"
)

// sendOften sums tensors of ones, prints the time of each, and at last the bytes that have left by each wire.
func sendOften(t testing.TB, w *World, rounds, size int) {
	data := make([]byte, size)
	before := [2]uint64{sentBy(t, netns.Interface), sentBy(t, netns.SecondInterface)}
	for range rounds {
		for i := range size / 4 {
			copy(data[4*i:], "\x00\x00\x80\x3f") // 1
		}
		fmt.Println("took", sumInPlace(t, w, "gradient", data).Nanoseconds())
	}
	if i := slices.IndexFunc(slices.Collect(slices.Chunk(data, 4)),
		func(p []byte) bool { return string(p) != "\x00\x00\x00\x40" }); i >= 0 {
		t.Fatalf("element %d is not 2", i)
	}
	fmt.Println("sent", sentBy(t, netns.Interface)-before[0], sentBy(t, netns.SecondInterface)-before[1])
}

// sentBy is the number of bytes that have left by an interface.
func sentBy(t testing.TB, name string) uint64 {
	table, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			n, err := strconv.ParseUint(strings.Fields(rest)[8], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no interface %s", name)
	return 0
}

// over are settings under which sendOften uses the wires in several ways.
var over = []struct {
	name string
	env  []string
	both bool
}{
	{"all", []string{"HOROVOD_GLOO_IFACE="}, true},
	{"both", []string{"HOROVOD_GLOO_IFACE=" + netns.Interface + "," + netns.SecondInterface}, true},
	{"one", []string{"HOROVOD_GLOO_IFACE=" + netns.SecondInterface}, false},
}

// Two equal interfaces share the data without any setting, each half of it.
func TestTwoWires(t *testing.T) {
	const rounds, size = 4, 4 << 20
	if asRole(t, func(w *World) { sendOften(t, w, rounds, size) }) {
		return
	}
	hosts := netns.Two(t, "")
	netns.SecondWire(t, hosts, "")
	for _, c := range over {
		for r, p := range startRanks(t, hosts, "rank", 1, c.env...) {
			text, err := p.line("sent")
			var first, second float64
			if _, scanErr := fmt.Sscan(text, &first, &second); err != nil || scanErr != nil {
				t.Fatalf("%s: rank %d: %v: %s", c.name, r, err, p.stderr.String())
			}
			const all = rounds * size // the two halves of a ring of two, and little else
			switch {
			case first+second < all:
				t.Errorf("%s: rank %d has sent %v and %v bytes of %d", c.name, r, first, second, all)
			case c.both && (first < 0.4*all || second < 0.4*all):
				t.Errorf("%s: rank %d has sent %v and %v bytes", c.name, r, first, second)
			case !c.both && first > 0.1*all:
				t.Errorf("%s: rank %d has sent %v bytes by the first wire", c.name, r, first)
			}
		}
	}
}

// BenchmarkTwoWires measures a large allreduce between two hosts with two wires of 1 Gbit/s, and the share of one
// wire's rate that it uses.
func BenchmarkTwoWires(b *testing.B) {
	const rounds, size = 6, 64 << 20
	if asRole(b, func(w *World) { sendOften(b, w, rounds, size) }) {
		return
	}
	for _, c := range over {
		b.Run(c.name, func(b *testing.B) {
			hosts := netns.Two(b, "1gbit")
			netns.SecondWire(b, hosts, "1gbit")
			for b.Loop() {
				ranks := startRanks(b, hosts, "rank", 1, c.env...)
				took := slowest(b, ranks, rounds)
				median := took[(rounds-1)/2]
				b.ReportMetric(float64(median.Milliseconds()), "ms/64MiB")
				b.ReportMetric(float64(size)*8/1e9/median.Seconds()*100, "%-of-one")
			}
		})
	}
}

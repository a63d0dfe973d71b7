package bench

import (
	"bytes"
	"image/png"
	"strings"
	"testing"
)

func TestPlot(t *testing.T) {
	full := &Report{Ranks: 2, Peers: []Peer{{Name: PeerGo}}}
	full.Limits.Allreduce = 1e10
	for _, n := range []int{4, 1 << 10, 1 << 20, 1 << 26} {
		full.Results = append(full.Results, Result{Peer: PeerGo, Task: TaskAllreduce, Bytes: n,
			Time: Stat{Median: float64(n) / 1e10}, AlgBW: 1e10})
	}
	one := &Report{Ranks: 2, Peers: full.Peers, Results: full.Results[:1]}
	for name, r := range map[string]*Report{"empty": {Ranks: 1}, "one size": one, "full": full} {
		var b bytes.Buffer
		if err := r.plot(&b, "x.svg"); err != nil || !strings.Contains(b.String(), "</svg>") ||
			strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Errorf("%s: %v, %s", name, err, &b)
		}
		if name == "full" && (!strings.Contains(b.String(), ">gorovod (Go)<") ||
			!strings.Contains(b.String(), ">limit<") ||
			!strings.Contains(b.String(), ">256 KiB<")) {
			t.Errorf("%s: a part is missing: %s", name, &b)
		}
		b.Reset()
		if err := r.plot(&b, "x.png"); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if _, err := png.Decode(&b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSummary(t *testing.T) {
	r := &Report{Ranks: 2, Peers: []Peer{{Name: PeerGo}, {Name: peerGloo}, {Name: peerOpenMPI}}, Results: []Result{
		{Peer: PeerGo, Task: nameResNet, Time: Stat{Median: 0.015}}, {Peer: peerGloo, Task: nameResNet,
			Time: Stat{Median: 0.3}}, {Peer: PeerGo, Task: TaskAllreduce, Bytes: 4, Time: Stat{Median: 1e-6},
			AlgBW: 4e6}}}
	var b bytes.Buffer
	if err := r.summarise(&b, "x.svg"); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{">Gradients of ResNet-50 on 2 ranks: time<", ">15.0 ms<", ">torch gloo<", ">300 ms<",
		">Allreduce on 2 ranks: time<"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("no %s in %s", part, &b)
		}
	}
	if strings.Contains(b.String(), "Open MPI") {
		t.Errorf("a contender without figures is drawn: %s", &b)
	}
}

func TestDecades(t *testing.T) {
	for e, want := range map[int]string{-7: "100 n", -6: "1 µ", 0: "1 ", 10: "10 G"} {
		if got := decade(e); got != want {
			t.Errorf("%d: %q, want %q", e, got, want)
		}
	}
}

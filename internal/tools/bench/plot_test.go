package bench

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// The Horovod of another run is told apart from the contenders of this one: dashed and hollow, with date and host.
func TestSeparateRun(t *testing.T) {
	results := func(peer string, seconds float64) []Result {
		return []Result{{Peer: peer, Task: nameResNet, Time: Stat{Median: seconds}}, {Peer: peer, Task: TaskAllreduce,
			Bytes: 4, Time: Stat{Median: 1e-3}, AlgBW: 4e3}, {Peer: peer, Task: TaskAllreduce, Bytes: 1024,
			Time: Stat{Median: 2e-3}, AlgBW: 512e3}}
	}
	const horovod = peerHorovod + "-gloo"
	other := &Report{Version: reportVersion, Ranks: 2, Started: time.Unix(1764380000, 0).UTC(),
		Peers:   []Peer{{Name: PeerGo}, {Name: horovod}},
		Results: append(results(PeerGo, 0.7), results(horovod, 0.178)...), Noise: []string{"others were busy"}}
	other.Machine.Host = "elsewhere"
	file := filepath.Join(t.TempDir(), "horovod.json")
	write := func(r *Report) {
		t.Helper()
		var b bytes.Buffer
		if err := r.writeJSON(&b); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(other)
	o, _, err := parse("bench", []string{"--separate", file})
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{Ranks: 2, Peers: []Peer{{Name: PeerGo}}, Results: results(PeerGo, 0.015), separate: o.separate}
	var b bytes.Buffer
	if err := r.summarise(&b, "x.svg"); err != nil {
		t.Fatal(err)
	}
	svg := b.String()
	for _, part := range []string{">15.0 ms<", ">178 ms<", ">horovod-gloo (separate run)<",
		"separate run, because its threads disturb others, on elsewhere, 2025-11-29 01:33 UTC",
		">NOISE in the separate run: others were busy<", `stroke="#56b4e9" stroke-width="1.8" stroke-dasharray`} {
		if !strings.Contains(svg, part) {
			t.Errorf("no %s in %s", part, svg)
		}
	}
	if strings.Contains(svg, ">700 ms<") || strings.Contains(svg, `fill="#56b4e9"`) {
		t.Errorf("more than Horovod of the separate run is drawn, or not dashed and hollow: %s", svg)
	}
	b.Reset()
	if err := r.writeJSON(&b); err != nil || strings.Contains(b.String(), horovod) {
		t.Errorf("the JSON has another run's figures (%v): %s", err, &b)
	}

	for says, change := range map[string]func(*Report){
		"is of 4 ranks, and this run of 2":   func(r *Report) { r.Ranks = 4 },
		"has version 9 of the report":        func(r *Report) { r.Version = 9 },
		"has no figures of Horovod: measure": func(r *Report) { r.Peers = r.Peers[:1] },
	} {
		changed := *other
		change(&changed)
		write(&changed)
		_, _, err := parse("bench", []string{"--separate", file})
		if err == nil || !strings.HasPrefix(err.Error(), "--separate "+file) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
}

func TestDecades(t *testing.T) {
	for e, want := range map[int]string{-7: "100 n", -6: "1 µ", 0: "1 ", 10: "10 G"} {
		if got := decade(e); got != want {
			t.Errorf("%d: %q, want %q", e, got, want)
		}
	}
}

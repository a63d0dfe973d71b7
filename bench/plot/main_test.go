package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/bench"
)

func TestPicture(t *testing.T) {
	report := &bench.Report{Ranks: 2, Peers: []bench.Peer{{Name: bench.PeerGo}}}
	report.Limits.Allreduce = 1e10
	for _, n := range []int{4, 1 << 10, 1 << 20, 1 << 26} {
		report.Results = append(report.Results, bench.Result{Peer: bench.PeerGo, Task: bench.TaskAllreduce, Bytes: n, Time: bench.Stat{Median: float64(n) / 1e10}, AlgBW: 1e10})
	}
	for name, r := range map[string]*bench.Report{"empty": {Ranks: 1}, "full": report} {
		var b bytes.Buffer
		if err := write(r, &b); err != nil || !strings.Contains(b.String(), "</svg>") {
			t.Errorf("%s: %v, %d bytes", name, err, b.Len())
		}
		if name == "full" && (!strings.Contains(b.String(), ">go<") || !strings.Contains(b.String(), ">limit<")) {
			t.Errorf("%s: a line is missing", name)
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

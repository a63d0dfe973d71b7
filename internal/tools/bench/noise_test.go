package bench

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Figures of a machine with other work, of ranks that share cores, and of samples that differ much, are marked.
func TestNoiseIsMarked(t *testing.T) {
	for _, c := range []struct {
		name                 string
		others               float64
		usable, ranks, cores int
		want                 string
	}{
		{"idle", 0.2, 2, 2, 2, ""},
		{"other work", 1.04, 2, 2, 2, "other programs used 1.0 of 2 cores between the rounds"},
		{"little of a large machine", 8, 64, 2, 64, ""},
		{"ranks that share cores", 0, 2, 4, 2, "4 ranks shared 2 cores"},
	} {
		r := &Report{Ranks: c.ranks, Machine: Machine{Usable: c.usable, Others: c.others}}
		got := strings.Join(r.noise(c.cores), "\n")
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	r := &Report{Ranks: 2, Gorovod: "1.2.3", Started: time.Unix(1764380000, 0).UTC(),
		Noise: []string{"all cores were taken"}, Peers: []Peer{{Name: PeerGo}, {Name: peerPython}},
		Machine: Machine{Host: "node7", CPU: "a CPU", Usable: 2}}
	r.Results = []Result{
		{Peer: PeerGo, Task: TaskAllreduce, Bytes: 4, Time: Stat{9, 2e-6, 0.2e-6, 2.1e-6}, AlgBW: 2e6},
		{Peer: peerPython, Task: TaskAllreduce, Bytes: 4, Time: Stat{9, 2e-6, 1.5e-6, 2.1e-6}, AlgBW: 2e6}}
	var table, plot bytes.Buffer
	if err := r.table(&table); err != nil {
		t.Fatal(err)
	}
	if err := r.plot(&plot, "x.svg"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"gorovod 1.2.3 on node7: ", "\nNOISE: all cores were taken\n", " ?2.00 µs (",
		" 2.00 µs (1.50", "  ? noise: the slowest tenth", "Times as fast as the peers: gorovod (Go)"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, &table)
		}
	}
	for _, want := range []string{">gorovod (Go)<", ">gorovod (Python)<",
		">gorovod 1.2.3 on node7, 2025-11-29 01:33 UTC: 2 ranks on 2 cores, a CPU<", ">NOISE: all cores were taken<"} {
		if !strings.Contains(plot.String(), want) {
			t.Errorf("the picture has no %q:\n%s", want, &plot)
		}
	}
}

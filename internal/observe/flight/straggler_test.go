package flight

import (
	"strings"
	"testing"
	"time"
)

// paced are the dumps of ranks that do 20 operations, 100 ms apart, with so many tensors each. Rank i submits late[i]
// after the others.
func paced(tensors int, late ...time.Duration) []*Dump {
	start := time.Unix(1000, 0)
	var dumps []*Dump
	for rank, l := range late {
		d := &Dump{Rank: rank, Size: len(late), Time: start.Add(2 * time.Second)}
		for step := range 20 {
			for n := range tensors {
				at := start.Add(time.Duration(step)*100*time.Millisecond + l + time.Duration(n)).UnixNano()
				d.Records = append(d.Records, Record{Name: "grad", Op: "ALLREDUCE",
					Sequence: uint64(step*tensors + n + 1), Submitted: at, Agreed: at, Started: at, Ended: at + 1})
			}
		}
		dumps = append(dumps, d)
	}
	return dumps
}

func TestNowNamesAStraggler(t *testing.T) {
	const ms = time.Millisecond
	missing := paced(1, 0, 40*ms)
	missing[0].Size, missing[1].Size = 3, 3
	start := paced(1, 0, 40*ms)
	for _, d := range start {
		d.Records = d.Records[:9]
		d.Time = d.Time.Add(-time.Second)
	}
	for name, c := range map[string]struct {
		dumps []*Dump
		want  string
	}{
		"one is late":               {paced(1, 0, 40*ms, ms), "waits for rank 1 in 39 % of the last 1.9 s"},
		"many tensors at once":      {paced(3, 40*ms, 0), "waits for rank 0 in 40 % of the last 1.9 s"},
		"only a first step":         {start, "works; its last operation is ALLREDUCE"},
		"all keep pace":             {paced(1, 0, ms, 2*ms), "works; its last operation is ALLREDUCE"},
		"late by little":            {paced(1, 0, 8*ms), "works; its last operation is ALLREDUCE"},
		"a rank is on another host": {missing, "works; its last operation is ALLREDUCE"},
		"one rank waits for nobody": {paced(1, 0), "works; its last operation is ALLREDUCE"},
	} {
		if got := Now(c.dumps); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	stuck := paced(1, 0, 0)
	stuck[0].Records = append(stuck[0].Records, Record{Name: "loss", Op: "ALLREDUCE",
		Submitted: time.Unix(990, 0).UnixNano()})
	stuck[1].At = "save (train.py:31)"
	const want = `rank 0 waits for rank 1 in ALLREDUCE "loss", for 12.0 s; rank 1 is in save (train.py:31)`
	if got := Now(stuck); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var b strings.Builder
	Merge(&b, stuck, nil)
	if !strings.Contains(b.String(), "; it is in save (train.py:31)\n") {
		t.Errorf("the dump does not say where the late rank is:\n%s", &b)
	}
}

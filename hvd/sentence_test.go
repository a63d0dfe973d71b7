package hvd

import (
	"fmt"
	"testing"
	"time"
)

// test_what_the_short_form_says has the same figures in Python.
func TestFiguresAreASentence(t *testing.T) {
	f := &Figures{Rank: 1, Size: 4, Collectives: []CollectiveFigures{
		{Bytes: 5e9, Times: Histogram{Count: 2, Sum: 2500 * time.Millisecond}},
		{Times: Histogram{Count: 1, Sum: 500 * time.Millisecond}}},
		Steps: Histogram{Count: 4, Sum: 500 * time.Millisecond}, Waited: 250 * time.Millisecond,
		WaitedFor: []Late{{3, 10 * time.Millisecond}, {2, 200 * time.Millisecond}},
		Pending:   2, OldestPending: 61200 * time.Millisecond, NaNs: 1}
	const want = "rank 1 of 4: 3 collectives (5 GB of tensors) in 3.0 s; 4 steps of 125 ms; waited 250 ms for other " +
		"ranks, most for rank 2 (200 ms); 2 pending, the oldest for 61.2 s; 1 tensors with a NaN or an infinity"
	if got := fmt.Sprint(f); got != want {
		t.Errorf("%s\ninstead of\n%s", got, want)
	}
	const none = "rank 0 of 1: 0 collectives (0 B of tensors) in 0 µs; 96 samples; waited 0 µs for other ranks"
	if got := fmt.Sprint(&Figures{Size: 1, Samples: 96}); got != none {
		t.Errorf("%s\ninstead of\n%s", got, none)
	}
	for d, want := range map[time.Duration]string{1500: "1.5 µs", 999_900: "999.9 µs", 81_234_567: "81.2 ms",
		9200 * time.Millisecond: "9.2 s"} {
		if got := short(d); got != want {
			t.Errorf("%d ns: %s, not %s", d, got, want)
		}
	}
	for n, want := range map[uint64]string{999: "999 B", 12_000: "12 kB", 38_100_000_000: "38.1 GB",
		5_000_000_000_000: "5 TB"} {
		if got := decimal(n); got != want {
			t.Errorf("%d bytes: %s, not %s", n, got, want)
		}
	}
}

package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// figures are the figures of a rank after n allreduces of 4 bytes and a wait.
func figures(n uint64, waited time.Duration) *feed.Figures {
	f := &feed.Figures{Samples: 32 * n, Waited: uint64(waited), Marks: n, Pending: 1, Oldest: uint64(time.Second),
		Resident: 1 << 20,
		Tensors:  []feed.Tensors{{Op: operation.Allreduce, DType: tensor.Float32, Count: n}},
		Works:    []feed.Work{{Op: operation.Allreduce, Bytes: 4 * n}},
		Early:    feed.Early{Operations: n, Bytes: 4096},
		Hosts:    feed.Hosts{Latency: 50e3, Rate: 125e6, Took: 15e6},
		Fusion:   feed.Fusion{Batches: n, Tensors: n, Bytes: 4 * n, Threshold: 8}}
	for range n {
		f.Works[0].Times.Observe(1500)
		f.Negotiation.Observe(int64(time.Minute))
		f.Steps.Observe(int64(time.Second))
	}
	return f
}

func all(n int) func() int { return func() int { return n } }

// shown is the page, as text.
func shown(t *testing.T, j *Job) string {
	t.Helper()
	s := httptest.NewServer(Handler(j, "", true))
	defer s.Close()
	r, err := http.Get(s.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", r.Status, err, text)
	}
	return string(text)
}

// has checks that the page has these lines.
func has(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(page, "\nhorovod_"+line+"\n") {
			t.Errorf("%q is missing", line)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestSumsOfAllRanks(t *testing.T) {
	j := NewJob()
	j.Form(3, 0, all(2))
	if page := shown(t, j); strings.Contains(page, "collective") {
		t.Errorf("figures before any rank has told some: %s", page)
	}
	for rank := range 3 {
		for _, n := range []uint64{1, 10} { // the counts are cumulative, so only the last ones matter
			f := figures(n, time.Duration(rank)*time.Second)
			j.Take(rank, 1, "", f.Append(nil))
			f.Works, f.Tensors = nil, nil // unchanged figures are left out
			j.Take(rank, 1, "", f.Append(nil))
		}
	}
	has(t, shown(t, j), "world_size 3", `workers{state="joined"} 2`, `workers{state="missing"} 1`, "reporting_ranks 3",
		`collectives_total{dtype="float32",op="allreduce",process_set="0"} 30`, `collective_bytes_total{op="allreduce"} 120`,
		`collective_seconds_bucket{op="allreduce",size_class="1KiB",le="1e-06"} 0`,
		`collective_seconds_bucket{op="allreduce",size_class="1KiB",le="2e-06"} 30`,
		`collective_seconds_bucket{op="allreduce",size_class="1KiB",le="+Inf"} 30`,
		`negotiation_seconds_bucket{le="16.777216"} 0`, "negotiation_seconds_sum 1800", "negotiation_seconds_count 30",
		`wait_seconds_total{rank="0"} 0`, `wait_seconds_total{rank="2"} 2`, "cache_hits_total 30", "pending_operations 3",
		"oldest_pending_seconds 1", `resident_memory_bytes{rank="1"} 1.048576e+06`, "fusion_fill_ratio 0.5",
		"early_operations_total 30", "early_bytes 4096",
		"link_latency_seconds 5e-05", "link_bytes_per_second 1.25e+08", "links_measured_seconds 0.015",
		`elastic_resets_total{cause="failure"} 0`, `step_seconds_bucket{le="1.048576"} 30`, "step_seconds_sum 30", "steps_total 10",
		"samples_total 960")
}

// TestSumsOutliveWorlds checks that no sum shrinks when an elastic job forms anew. Late figures of an earlier world, or
// figures that a rank takes back, count nothing.
func TestSumsOutliveWorlds(t *testing.T) {
	j := NewJob()
	j.Form(2, 1<<20, all(2))
	j.Take(0, 1<<20+1, "", figures(10, time.Second).Append(nil))
	j.Take(1, 1<<20+1, "", figures(10, 0).Append(nil))
	j.Reset(membership.ByFailure)
	j.Form(1, 2<<20, all(1))
	j.Take(0, 2<<20+1, "", figures(5, 2*time.Second).Append(nil))
	j.Take(0, 1<<20+1, "", figures(100, time.Hour).Append(nil))
	j.Take(1, 2<<20+1, "", figures(100, time.Hour).Append(nil)) // that rank no longer exists
	j.Take(0, 2<<20+2, "", figures(1, 0).Append(nil))           // the program has called Init again
	j.Take(0, 2<<20+2, "", figures(0, 0).Append(nil))
	has(t, shown(t, j), "world_size 1", `collectives_total{dtype="float32",op="allreduce",process_set="0"} 26`,
		`wait_seconds_total{rank="0"} 3`, "steps_total 16", "samples_total 832",
		`elastic_resets_total{cause="failure"} 1`, `elastic_resets_total{cause="added"} 0`, "reporting_ranks 1",
		"pending_operations 1")
}

// TestWaitingIsCharged checks that the ranks' reports about other ranks are added up, and that ranks outside the world
// are charged nothing.
func TestWaitingIsCharged(t *testing.T) {
	j := NewJob()
	j.Form(3, 0, all(3))
	for _, told := range [][]feed.Late{{{Rank: 1, Nanoseconds: 2e9}}, {{Rank: 1, Nanoseconds: 1e9}, {Rank: 2,
		Nanoseconds: 5e8}, {Rank: 3, Nanoseconds: 7e9}}} {
		f := figures(1, 0)
		f.WaitedFor = told
		j.Take(0, 1, "", f.Append(nil))
		j.Take(2, 1, "", f.Append(nil))
	}
	page := shown(t, j)
	has(t, page, `waited_for_seconds_total{rank="0"} 0`, `waited_for_seconds_total{rank="1"} 6`,
		`waited_for_seconds_total{rank="2"} 1`)
	if strings.Contains(page, `waited_for_seconds_total{rank="3"}`) {
		t.Errorf("a rank that there is not is charged: %s", page)
	}
}

// TestManyRanksHaveBoundedLabels checks a job of 4096 ranks.
func TestManyRanksHaveBoundedLabels(t *testing.T) {
	const ranks = 4096
	j := NewJob()
	j.Form(ranks, 0, all(ranks))
	value := figures(10, time.Second).Append(nil)
	began := time.Now()
	for rank := range ranks {
		j.Take(rank, 1, "", value)
	}
	taken := time.Since(began)
	page := shown(t, j)
	t.Logf("a round of %d ranks takes %v, %d bytes from each; the page has %d bytes and %v", ranks, taken, len(value),
		len(page), time.Since(began)-taken)
	has(t, page, fmt.Sprintf(`wait_seconds_total{rank="other"} %d`, ranks-maxRanks), "reporting_ranks 4096")
	if n := strings.Count(page, "\nhorovod_wait_seconds_total{"); n != maxRanks+1 {
		t.Errorf("%d ranks have labels", n)
	}
}

// TestDamagedFiguresCountNothing feeds figures that no rank sends.
func TestDamagedFiguresCountNothing(t *testing.T) {
	j := NewJob()
	j.Form(2, 0, all(2))
	whole := figures(10, 0).Append(nil)
	for n := range whole {
		j.Take(0, 1, "", whole[:n])
	}
	j.Take(7, 1, "", whole)
	if page := shown(t, j); strings.Contains(page, "collectives_total{") {
		t.Error(page)
	}
}

// TestTables: what ranks tell of a sparse table is added up, its hot keys are averaged, and what earlier worlds have
// pulled stays.
func TestTables(t *testing.T) {
	j := NewJob()
	take := func(rank int, generation, n uint64) {
		f := &feed.Figures{}
		f.SetTables([]feed.Table{{Name: "users", Set: 1, Rows: 10 * n, Bytes: 100 * n, Hottest: 100000 * n, Pulls: n,
			Pushes: 2 * n, PullTime: n * 1e9, PushTime: n * 2e9, Keys: 7 * n}})
		j.Take(rank, generation, "", f.Append(nil))
	}
	j.Form(2, 0, all(2))
	take(0, 0, 1)
	take(0, 0, 2)
	take(1, 0, 4)
	const labels = `process_set="1",table="users"`
	has(t, shown(t, j), "table_rows{"+labels+"} 60", "table_bytes{"+labels+"} 600",
		"table_hottest_ratio{"+labels+"} 0.3", `table_operations_total{op="pull",`+labels+"} 6",
		`table_operations_total{op="push",`+labels+"} 12", `table_seconds_total{op="pull",`+labels+"} 6",
		`table_seconds_total{op="push",`+labels+"} 12", "table_keys_total{"+labels+"} 42")
	j.Form(1, 1, all(1))
	take(0, 1, 1)
	has(t, shown(t, j), "table_rows{"+labels+"} 10", `table_operations_total{op="pull",`+labels+"} 7")
}

// TestManyTables: tables beyond the last label are added up.
func TestManyTables(t *testing.T) {
	j := NewJob()
	j.Form(3, 0, all(3))
	for rank := range 3 {
		f := &feed.Figures{}
		var tables []feed.Table
		for i := range feed.MaxTables {
			tables = append(tables, feed.Table{Name: fmt.Sprintf("%d.%d", rank, i), Rows: 1, Pulls: 1})
		}
		f.SetTables(tables)
		j.Take(rank, 1, "", f.Append(nil))
	}
	const labels = `process_set="0",table="other"`
	has(t, shown(t, j), "table_rows{"+labels+"} 128", `table_operations_total{op="pull",`+labels+"} 128")
}

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/tools/bench"
)

// sample is a report of one cell, in which gloo failed and one work was not begun.
func sample() *report {
	stat := func(median float64) bench.Stat { return bench.Stat{N: 9, Median: median, P10: median, P90: median} }
	small := bench.Outcome{Work: "4 B, in a loop", Bytes: 4, Tensors: 1}
	large := bench.Outcome{Work: "1 MiB", Bytes: 1 << 20, Tensors: 1}
	with := func(o bench.Outcome, peer string, median, cpu float64, skipped string) bench.Outcome {
		o.Peer, o.Skipped, o.CPU = peer, skipped, cpu
		if skipped == "" {
			o.Time = stat(median)
		}
		return o
	}
	return &report{Started: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC), Gorovod: "abc", Machine: "Xeon", Cores: 2,
		Cells: []result{{Cell: cell{4, 2, 1e9, 200 * time.Microsecond}, OneWay: 21e-6, Load: 0.25,
			Peers: []string{peerGo, peerGloo, peerOpenMPI}, Outcomes: []bench.Outcome{
				with(small, peerGo, 123.4e-6, 50e-6, ""), with(small, peerGloo, 0, 0, "failed"),
				with(small, peerOpenMPI, 0.5e-3, 70e-6, ""),
				with(large, peerGo, 12.6e-3, 4e-3, ""), with(large, peerGloo, 0, 0, "failed"),
				with(large, peerOpenMPI, 0, 0, "no time")}}}}
}

const sampleTables = `
**4 hosts of 2 ranks, 1 Gbit/s, 200µs one way.** One way of 4 B over TCP: 21.0 µs. Load average before: 0.2.

| time, median | gorovod, Go | gloo | Open MPI, C | link's bound | delays |
|---|---:|---:|---:|---:|---:|
| 4 B, in a loop | 123 µs | (failed) | 500 µs | 48.0 ns | 400 µs |
| 1 MiB | 12.6 ms | (failed) | (no time) | 12.6 ms | 400 µs |

| processor time of all ranks | gorovod, Go | gloo | Open MPI, C |
|---|---:|---:|---:|
| 4 B, in a loop | 50.0 µs | (failed) | 70.0 µs |
| 1 MiB | 4.00 ms (3.81 ns/B) | (failed) | (no time) |
`

// A page gets the tables between its two lines, in the place of those of an earlier run. The rest of it stays.
func TestTablesGoBetweenThePagesLines(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	const before, after = "# Title\n\ntext\n\n", "\nmore\n"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	want := before + pageBegin + "\nMeasured on 30 November 2026 on 2 cores of an Xeon, gorovod abc.\n" + sampleTables +
		"\n" + pageEnd + after
	write(before + pageBegin + "old figures\n" + pageEnd + after)
	for range 2 { // the second run replaces what the first one wrote
		if err := sample().into(page); err != nil {
			t.Fatal(err)
		}
		if got := read(); got != want {
			t.Fatalf("got:\n%s\nwant:\n%s", got, want)
		}
	}
	for _, text := range []string{"", before + pageBegin, before + pageEnd, pageEnd + pageBegin} {
		write(text)
		err := sample().into(page)
		if err == nil || !strings.Contains(err.Error(), page+": it has no line <!-- bench-hosts: made by") {
			t.Errorf("%q: %v", text, err)
		}
		if read() != text {
			t.Errorf("%q has become %q", text, read())
		}
	}
	if err := sample().into(page + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// The page of the documentation has the lines between which the tables stand.
func TestPerformancePageHasTheLines(t *testing.T) {
	text, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), pageBegin)
	if !found || !strings.Contains(rest, pageEnd) {
		t.Errorf("docs/performance.md has no place for the tables: it needs the lines %s and %s",
			strings.TrimSpace(pageBegin), strings.TrimSpace(pageEnd))
	}
}

// All figures go to the files that the options name.
func TestReportIsWritten(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("page.md"), []byte(pageBegin+pageEnd), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &options{json: at("all.json"), page: at("page.md"), plot: at("times.svg")}
	if err := o.write(sample()); err != nil {
		t.Fatal(err)
	}
	var back report
	text, err := os.ReadFile(o.json)
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || len(back.Cells) != 1 || len(back.Cells[0].Outcomes) != 6 ||
		back.Cells[0].Outcomes[5].Skipped != "no time" || back.Cells[0].Cell != sample().Cells[0].Cell {
		t.Errorf("%v: %s", err, text)
	}
	picture, err := os.ReadFile(o.plot)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"4 hosts of 2 ranks, 1 Gbit/s", "Open MPI, C", "link&#39;s bound and two delays",
		"256 KiB"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
	for _, o := range []*options{{plot: at("times.pdf")}, {json: at("none/all.json")}, {page: at("none.md")}} {
		if o.write(sample()) == nil {
			t.Errorf("%+v: nothing is wrong", o)
		}
	}
	if err := (&report{}).draw(at("none.svg")); err == nil {
		t.Error("a picture of nothing is drawn")
	}
	few := sample()
	few.Cells[0].Outcomes = few.Cells[0].Outcomes[3:] // one contender has one size, the others have failed
	lists := sample().Cells[0]
	lists.Outcomes = nil
	for _, cells := range [][]result{few.Cells, {lists, few.Cells[0]}} {
		if err := (&report{Cells: cells}).draw(at("few.svg")); err != nil {
			t.Error(err)
		}
	}
	if err := (&report{Cells: []result{lists}}).draw(at("none.svg")); err == nil {
		t.Error("a picture without figures of a single tensor is drawn")
	}
}

func TestSpan(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0 ns", 4e-9: "4.00 ns", 999.4e-9: "999 ns", 999.9e-9: "1.00 µs",
		9.996e-6: "10.0 µs", 0.0123: "12.3 ms", 1.5: "1.50 s", 123: "123 s"} {
		if got := span(seconds); got != want {
			t.Errorf("%v s: %q, not %q", seconds, got, want)
		}
	}
	for e, want := range map[int]string{-9: "1 ns", -6: "1 µs", -5: "10 µs", -1: "100 ms", 0: "1 s", 1: "10 s"} {
		if got := power(e); got != want {
			t.Errorf("10^%d s: %q, not %q", e, got, want)
		}
	}
}

// A link bounds what the busiest host must send; two delays are the least for any operation.
func TestBound(t *testing.T) {
	link, delays := cell{4, 2, 1e9, 2 * time.Millisecond}.bound(1 << 20)
	if want := 1.5 * 8 * (1 << 20) / 1e9; link != want || delays != 4e-3 {
		t.Errorf("%v and %v, want %v and 4 ms", link, delays, want)
	}
	if link, delays := (cell{4, 2, 0, 0}).bound(1 << 20); link != 0 || delays != 0 {
		t.Errorf("%v and %v without a limit and a delay", link, delays)
	}
}

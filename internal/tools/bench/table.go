package bench

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// table prints the report for people.
func (r *Report) table(w io.Writer) error {
	var b bytes.Buffer
	m := r.Machine
	fmt.Fprintf(&b, "gorovod %s on %s: np %d, %d of %d cores, %s, Linux %s\n", r.Gorovod, m.Host, r.Ranks, m.Usable,
		m.Cores, m.CPU, m.Kernel)
	fmt.Fprintf(&b, "%s, %.0f s, %d rounds, load average before %.2f, after %.2f\n",
		r.Started.Format("2006-01-02 15:04 MST"), r.Seconds, r.Rounds, m.LoadBefore, m.LoadAfter)
	for _, e := range m.Environment {
		fmt.Fprintf(&b, "with %s\n", e)
	}
	for _, why := range r.Noise {
		fmt.Fprintf(&b, "NOISE: %s\n", why)
	}
	r.limits(&b)
	rows := r.rows(r.Results)
	section(&b, "Time, median (10 % … 90 %)", r.header(), rows, func(x *Result) string {
		mark := ""
		switch {
		case x.Early:
			mark = "~"
		case x.Time.noisy():
			mark = "?"
		}
		return fmt.Sprintf("%s%s (%s … %s)", mark, seconds(x.Time.Median), seconds(x.Time.P10), seconds(x.Time.P90))
	})
	if slices.ContainsFunc(r.Results, func(x Result) bool { return x.Early }) {
		fmt.Fprintln(&b, "  ~ time was over before a round that counts: what is there is of operations that were "+
			"new, and slower than later ones")
	}
	if slices.ContainsFunc(r.Results, func(x Result) bool { return !x.Early && x.Time.noisy() }) {
		fmt.Fprintf(&b, "  ? noise: the slowest tenth took more than %d times as long as the fastest tenth\n",
			mostSpread)
	}
	section(&b, "Bandwidth, GB/s: of the algorithm (of the bus)", r.header(), rows, func(x *Result) string {
		if x.Bytes < bandwidthFrom {
			return "-"
		}
		return fmt.Sprintf("%s (%s)", figures(x.AlgBW/1e9), figures(x.BusBW/1e9))
	})
	for _, ours := range []string{PeerGo, peerPython} {
		r.ratios(&b, ours, rows)
	}
	r.fastMode(&b)
	fmt.Fprintln(&b)
	for _, p := range r.Peers {
		fmt.Fprintf(&b, "%s: %s\n", label(p.Name), p.About)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "not measured: %s: %s\n", labels(s.Name), s.Why)
	}
	for _, f := range r.Failed {
		fmt.Fprintf(&b, "FAILED: %s\n", f.Why)
	}
	_, err := b.WriteTo(w)
	return err
}

func (r *Report) limits(b *bytes.Buffer) {
	l := r.Limits
	fmt.Fprintf(b, "\nThis machine, median (10 %% … 90 %%)\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	rate := func(s *Stat, unit float64) string {
		return fmt.Sprintf("%s (%s … %s)", figures(s.Median/unit), figures(s.P10/unit), figures(s.P90/unit))
	}
	if l.AddTraffic != nil {
		fmt.Fprintf(t, "  memory traffic of %d adding\t%s GB/s\n", r.Ranks, rate(l.AddTraffic, 1e9))
		fmt.Fprintf(t, "  limit of an allreduce\t%s GB/s\t(traffic / %d)\n", figures(l.Allreduce/1e9), 2*r.Ranks)
	}
	if l.TCP != nil {
		fmt.Fprintf(t, "  TCP over loopback\t%s Gbit/s\n", rate(l.TCP, 1e9/8))
	}
	if l.Wake != nil {
		fmt.Fprintf(t, "  waking a process\t%s\n", fmt.Sprintf("%s (%s … %s)", seconds(l.Wake.Median),
			seconds(l.Wake.P10), seconds(l.Wake.P90)))
	}
	if l.TwoCores != nil {
		s := *l.TwoCores
		fmt.Fprintf(t, "  two cores at once\t%s (%s … %s)\t(times one alone; fast mode in %d of %d rounds)\n",
			figures(s.Median), figures(s.P10), figures(s.P90), r.fastRounds(), len(r.Modes))
	}
	if l.Mode > 0 {
		fmt.Fprintf(t, "  mode factor\t%s\t(Open MPI at 1 MiB / 115 µs)\n", figures(l.Mode))
	}
	t.Flush()
}

// fastMode prints the medians of the rounds in the fast mode, if the run had other rounds, too.
func (r *Report) fastMode(b *bytes.Buffer) {
	f := r.Fast
	if f == nil {
		return
	}
	title := fmt.Sprintf("In the fast mode, %d of %d rounds: median time, and of the limit", f.Rounds, len(r.Modes))
	if f.Limits.AddTraffic != nil {
		title += fmt.Sprintf("; memory traffic %s GB/s", figures(f.Limits.AddTraffic.Median/1e9))
	}
	if f.Limits.Mode > 0 {
		title += fmt.Sprintf("; mode factor %s", figures(f.Limits.Mode))
	}
	section(b, title, r.header(), r.rows(f.Results), func(x *Result) string {
		if x.Bytes < LimitFrom || x.OfLimit == 0 {
			return seconds(x.Time.Median)
		}
		return fmt.Sprintf("%s, %.0f %%", seconds(x.Time.Median), 100*x.OfLimit)
	})
}

// row is a task with the peers' results, in the order of r.Peers; nil if a peer has none.
type row struct {
	name    string
	results []*Result
}

func (r *Report) rows(results []Result) []row {
	column := map[string]int{}
	for i, p := range r.Peers {
		column[p.Name] = i
	}
	var rows []row
	index := map[string]int{}
	for i := range results {
		x := &results[i]
		name := x.Task
		if name == TaskAllreduce {
			name = Size(x.Bytes)
		}
		at, ok := index[name]
		if !ok {
			at = len(rows)
			index[name] = at
			rows = append(rows, row{name, make([]*Result, len(r.Peers))})
		}
		rows[at].results[column[x.Peer]] = x
	}
	return rows
}

func (r *Report) header() []string {
	var names []string
	for _, p := range r.Peers {
		names = append(names, label(p.Name))
	}
	return names
}

// section prints a table with a cell for each result. It leaves out rows that have only "-".
func section(b *bytes.Buffer, title string, columns []string, rows []row, cell func(*Result) string) {
	fmt.Fprintf(b, "\n%s\n", title)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  \t%s\n", strings.Join(columns, "\t"))
	for _, row := range rows {
		empty, cells := true, make([]string, len(row.results))
		for i, x := range row.results {
			cells[i] = "-"
			if x != nil {
				cells[i] = cell(x)
			}
			empty = empty && cells[i] == "-"
		}
		if empty {
			continue
		}
		fmt.Fprintf(t, "  %s\t%s\n", row.name, strings.Join(cells, "\t"))
	}
	t.Flush()
}

// bandwidthFrom is the size in bytes from which a bandwidth means something.
const bandwidthFrom = 16 << 10

// LimitFrom is the size in bytes from which a fraction of the limit means something.
const LimitFrom = 1 << 20

// ratios prints how many times as fast as each peer one of this engine's front ends is.
func (r *Report) ratios(b *bytes.Buffer, ours string, rows []row) {
	var others []int
	at := -1
	for i, p := range r.Peers {
		switch p.Name {
		case ours:
			at = i
		case PeerGo, peerPython:
		default:
			others = append(others, i)
		}
	}
	if at < 0 {
		return
	}
	fmt.Fprintf(b, "\nTimes as fast as the peers: %s\n", label(ours))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  ")
	for _, i := range others {
		fmt.Fprintf(t, "\t%s", label(r.Peers[i].Name))
	}
	fmt.Fprint(t, "\tof the limit\n")
	for _, row := range rows {
		x := row.results[at]
		if x == nil {
			continue
		}
		fmt.Fprintf(t, "  %s", row.name)
		for _, i := range others {
			if ratio, ok := x.Ratios[r.Peers[i].Name]; ok {
				fmt.Fprintf(t, "\t%s", figures(ratio))
			} else {
				fmt.Fprint(t, "\t-")
			}
		}
		if x.Bytes >= LimitFrom && x.OfLimit > 0 {
			fmt.Fprintf(t, "\t%.0f %%\n", 100*x.OfLimit)
		} else {
			fmt.Fprint(t, "\t-\n")
		}
	}
	t.Flush()
}

// Size writes bytes as 4 B, 64 KiB, 1 MiB.
func Size(bytes int) string {
	for i, unit := range []string{"B", "KiB", "MiB"} {
		if bytes>>(10*i) < 1<<10 || i == 2 {
			return fmt.Sprintf("%d %s", bytes>>(10*i), unit)
		}
	}
	return ""
}

// seconds writes a time with three figures and its unit.
func seconds(s float64) string {
	switch {
	case s < 1e-3:
		return figures(s*1e6) + " µs"
	case s < 1:
		return figures(s*1e3) + " ms"
	}
	return figures(s) + " s"
}

// figures writes v with three figures, without an exponent.
func figures(v float64) string {
	if v <= 0 {
		return "0"
	}
	decimals := 2 - int(math.Floor(math.Log10(v)))
	return fmt.Sprintf("%.*f", min(max(decimals, 0), 4), v)
}

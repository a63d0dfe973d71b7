package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/load"
	"github.com/gorovod/gorovod/internal/tools/bench"
	"github.com/gorovod/gorovod/internal/tools/chart"
)

// report is what -json writes. Times are in seconds.
type report struct {
	Started time.Time `json:"started"`
	Gorovod string    `json:"gorovod"` // the commit, if git knows it
	Machine string    `json:"machine"` // the processor
	Cores   int       `json:"cores"`
	Cells   []result  `json:"cells"`
}

// version is the checkout's commit.
func version() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "a machine"
}

// rows are a cell's outcomes by work.
func (r *result) rows() (rows [][]bench.Outcome) {
	for i := 0; i < len(r.Outcomes); i += len(r.Peers) {
		rows = append(rows, r.Outcomes[i:i+len(r.Peers)])
	}
	return rows
}

// cell writes the tables of a cell.
func (r *report) cell(w io.Writer, x *result) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\n**%v.** One way of 4 B over TCP: %s. Load average before: %.1f.\n\n", x.Cell, span(x.OneWay),
		x.Load)
	fmt.Fprintf(&b, "| time, median |%s link's bound | delays |\n|---|%s\n", names(x.Peers),
		strings.Repeat("---:|", len(x.Peers)+2))
	for _, row := range x.rows() {
		fmt.Fprintf(&b, "| %s |", row[0].Work)
		for _, o := range row {
			fmt.Fprintf(&b, " %s |", text(&o, func() string { return span(o.Time.Median) }))
		}
		link, delays := x.Cell.bound(row[0].Bytes)
		fmt.Fprintf(&b, " %s | %s |\n", span(link), span(delays))
	}
	fmt.Fprintln(&b)
	fmt.Fprintf(&b, "| processor time of all ranks |%s\n|---|%s\n", names(x.Peers),
		strings.Repeat("---:|", len(x.Peers)))
	for _, row := range x.rows() {
		fmt.Fprintf(&b, "| %s |", row[0].Work)
		for _, o := range row {
			fmt.Fprintf(&b, " %s |", text(&o, func() string {
				if o.Bytes >= 1<<20 {
					return fmt.Sprintf("%s (%s/B)", span(o.CPU), span(o.CPU/float64(o.Bytes)))
				}
				return span(o.CPU)
			}))
		}
		fmt.Fprintln(&b)
	}
	_, err := b.WriteTo(w)
	return err
}

// names are the contenders' cells of a table's head.
func names(peers []string) string {
	var b strings.Builder
	for _, p := range peers {
		fmt.Fprintf(&b, " %s |", labels[p])
	}
	return b.String()
}

// text is an outcome's figure, or says why there is none.
func text(o *bench.Outcome, figure func() string) string {
	if o.Skipped != "" {
		return "(" + o.Skipped + ")"
	}
	return figure()
}

// span writes a time with three figures and its unit.
func span(seconds float64) string {
	for _, unit := range []struct {
		name string
		of   float64
	}{{"ns", 1e-9}, {"µs", 1e-6}, {"ms", 1e-3}} {
		if seconds < 999.5*unit.of {
			return figures(seconds/unit.of) + " " + unit.name
		}
	}
	return figures(seconds) + " s"
}

// power writes 10^e seconds as 100 µs, 1 ms.
func power(e int) string {
	units := []string{"ns", "µs", "ms", "s"}
	at := min(max((e+9)/3, 0), 3)
	return fmt.Sprintf("%.0f %s", math.Pow(10, float64(e+9-3*at)), units[at])
}

// figures writes v with three figures, without an exponent.
func figures(v float64) string {
	if v <= 0 {
		return "0"
	}
	rounded := v * 1.0005 // so that 9.996 is 10.0, and not 10.00
	return fmt.Sprintf("%.*f", min(max(2-int(math.Floor(math.Log10(rounded))), 0), 3), v)
}

// The lines of a page between which the tables stand.
const (
	pageBegin = "<!-- bench-hosts: made by make bench-hosts PAGE=docs/performance.md -->\n"
	pageEnd   = "<!-- bench-hosts: end -->\n"
)

// into writes the tables into a page.
func (r *report) into(page string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), pageBegin)
	_, after, ended := strings.Cut(rest, pageEnd)
	if !found || !ended {
		return fmt.Errorf("%s: it has no line %s, or none %s after it", page, strings.TrimSpace(pageBegin),
			strings.TrimSpace(pageEnd))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%s\nMeasured %s on %s of an %s, gorovod %s.\n", before, pageBegin,
		r.Started.Format("on 2 January 2006"), load.Cores(r.Cores), r.Machine, r.Gorovod)
	for i := range r.Cells {
		if err := r.cell(&b, &r.Cells[i]); err != nil {
			return err
		}
	}
	fmt.Fprintf(&b, "\n%s%s", pageEnd, after)
	return os.WriteFile(page, b.Bytes(), 0o666)
}

// colours of the contenders. Colour-blind readers can tell them apart, too.
var colours = map[string]color.RGBA{peerPython: {86, 180, 233, 255}, peerAgain: {180, 180, 180, 255},
	peerBase: {204, 121, 167, 255}, peerBaseGo: {230, 159, 0, 255}, peerGo: {0, 114, 178, 255},
	peerGloo: {213, 94, 0, 255}, peerOpenMPI: {0, 158, 115, 255}}

// draw draws the times of one tensor over its size, a panel for each of the first two cells.
func (r *report) draw(file string) error {
	if err := chart.Check(file); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.Cells[:min(2, len(r.Cells))], result.drawable) {
		return errors.New("there is nothing to draw: the first two cells have no figures of a single tensor")
	}
	var panels []chart.Chart
	for i := range r.Cells[:min(2, len(r.Cells))] {
		if x := &r.Cells[i]; x.drawable() {
			panels = append(panels, x.panel(len(panels) == 0))
		}
	}
	var b bytes.Buffer
	captions := []string{fmt.Sprintf("gorovod %s, %s, %s of an %s", r.Gorovod, r.Started.Format("2006-01-02"),
		load.Cores(r.Cores), r.Machine)}
	if err := chart.Write(&b, file, captions, panels...); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o666)
}

// drawable reports that there is a figure of a single tensor.
func (r result) drawable() bool {
	return slices.ContainsFunc(r.Outcomes, func(o bench.Outcome) bool { return o.Tensors == 1 && o.Skipped == "" })
}

func (r *result) panel(legend bool) chart.Panel {
	p := chart.Panel{Title: r.Cell.String(), Legend: legend, X: chart.Axis{Label: "bytes", Low: 4, High: 64},
		Y: chart.Axis{Label: "seconds", Low: math.Inf(1)}}
	bound := chart.Line{Name: "link's bound and two delays", Dashed: true, Colour: color.RGBA{A: 255}}
	for k, peer := range r.Peers {
		l := chart.Line{Name: labels[peer], Colour: colours[peer]}
		for i, row := range r.rows() {
			if row[k].Tensors != 1 || row[k].Skipped != "" || i > 0 && row[k].Bytes == r.rows()[i-1][k].Bytes {
				continue
			}
			l.Points = append(l.Points, [2]float64{float64(row[k].Bytes), row[k].Time.Median})
			link, delays := r.Cell.bound(row[k].Bytes)
			if k == 0 && link+delays > 0 {
				bound.Points = append(bound.Points, [2]float64{float64(row[k].Bytes), link + delays})
			}
		}
		p.Lines = append(p.Lines, l)
	}
	for _, l := range p.Lines {
		for _, at := range l.Points {
			p.X.High, p.Y.Low, p.Y.High = max(p.X.High, at[0]), min(p.Y.Low, at[1]), max(p.Y.High, at[1])
		}
	}
	low, high := int(math.Floor(math.Log10(p.Y.Low))), int(math.Ceil(math.Log10(p.Y.High)))
	high = max(high, low+1)
	p.Y.Low, p.Y.High = math.Pow(10, float64(low)), math.Pow(10, float64(high))
	for e := low; e <= high; e++ {
		p.Y.Ticks = append(p.Y.Ticks, chart.Tick{At: math.Pow(10, float64(e)), Label: power(e)})
	}
	for v := 4; float64(v) <= p.X.High; v *= 16 {
		p.X.Ticks = append(p.X.Ticks, chart.Tick{At: float64(v), Label: bench.Size(v)})
	}
	// The bound of small tensors lies below the picture.
	for _, at := range bound.Points {
		if at[1] < p.Y.Low {
			continue
		}
		if len(p.Lines) == len(r.Peers) {
			p.Lines = append(p.Lines, chart.Line{Name: bound.Name, Dashed: true, Colour: bound.Colour})
		}
		last := &p.Lines[len(p.Lines)-1]
		last.Points = append(last.Points, at)
	}
	return p
}

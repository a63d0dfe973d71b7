// Command plot draws a report of gorovod bench: time and bandwidth of allreduce
// over the size, a line for each contender.
//
//	go run ./bench/plot bench.json bench.svg
//
// It is a program of its own, so that the launcher does not carry a plotting
// library and its fonts.
package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"os"

	"github.com/gorovod/gorovod/internal/bench"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// colours of the peers, in their order; readable by those who see fewer too.
var colours = []color.RGBA{{0, 114, 178, 255}, {86, 180, 233, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {230, 159, 0, 255}}

const (
	plotWidth  = 30 * vg.Centimeter
	plotHeight = 13 * vg.Centimeter
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: plot REPORT.json PICTURE.svg")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(report, picture string) error {
	in, err := os.Open(report)
	if err != nil {
		return err
	}
	defer in.Close()
	r, err := bench.ReadReport(in)
	if err != nil {
		return fmt.Errorf("%s: %w", report, err)
	}
	out, err := os.Create(picture)
	if err != nil {
		return err
	}
	if err := write(r, out); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// write writes the picture as SVG.
func write(r *bench.Report, w io.Writer) error {
	canvas := vgsvg.New(plotWidth, plotHeight)
	if err := drawReport(r, canvas); err != nil {
		return err
	}
	_, err := canvas.WriteTo(w)
	return err
}

// drawReport draws two plots side by side, all axes logarithmic.
func drawReport(r *bench.Report, canvas vg.CanvasSizer) error {
	left, right := plot.New(), plot.New()
	left.Title.Text = fmt.Sprintf("Allreduce on %d ranks: time", r.Ranks)
	right.Title.Text = "Bandwidth of the algorithm"
	left.Y.Label.Text, right.Y.Label.Text = "seconds", "bytes per second"
	left.Legend.Top, left.Legend.Left, left.Legend.XOffs, left.Legend.YOffs = true, true, vg.Millimeter, -2*vg.Millimeter
	for i, p := range r.Peers {
		var times, rates plotter.XYs
		for _, x := range r.Results {
			if x.Peer == p.Name && x.Task == bench.TaskAllreduce {
				times = append(times, plotter.XY{X: float64(x.Bytes), Y: x.Time.Median})
				rates = append(rates, plotter.XY{X: float64(x.Bytes), Y: x.AlgBW})
			}
		}
		if len(times) == 0 {
			continue
		}
		if err := line(left, p.Name, times, colours[i%len(colours)], true, false); err != nil {
			return err
		}
		if err := line(right, p.Name, rates, colours[i%len(colours)], false, false); err != nil {
			return err
		}
	}
	if limit := r.Limits.Allreduce; limit > 0 {
		var times, rates plotter.XYs
		for _, x := range r.Results {
			if x.Peer == bench.PeerGo && x.Task == bench.TaskAllreduce && x.Bytes >= bench.LimitFrom {
				times = append(times, plotter.XY{X: float64(x.Bytes), Y: float64(x.Bytes) / limit})
				rates = append(rates, plotter.XY{X: float64(x.Bytes), Y: limit})
			}
		}
		if len(times) > 0 {
			if err := line(left, "limit", times, color.RGBA{A: 255}, true, true); err != nil {
				return err
			}
			if err := line(right, "limit", rates, color.RGBA{A: 255}, false, true); err != nil {
				return err
			}
		}
	}
	for _, p := range []*plot.Plot{left, right} {
		p.X.Label.Text = "bytes"
		p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
		p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(sizeTicks), plot.TickerFunc(decadeTicks)
		// Without data the axes still need a range that a logarithm has.
		if p.X.Min > p.X.Max {
			p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 1, 10, 1, 10
		}
		if p.X.Min == p.X.Max {
			p.X.Max *= 2
		}
		p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(p.Y.Min))), math.Pow(10, math.Ceil(math.Log10(p.Y.Max)*(1+1e-12)))
		if p.Y.Min == p.Y.Max {
			p.Y.Max *= 10
		}
		p.Add(plotter.NewGrid())
	}
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: vg.Centimeter, PadRight: vg.Centimeter / 2, PadTop: vg.Centimeter / 4, PadBottom: vg.Centimeter / 4, PadLeft: vg.Centimeter / 4}
	places := plot.Align([][]*plot.Plot{{left, right}}, tiles, draw.New(canvas))
	left.Draw(places[0][0])
	right.Draw(places[0][1])
	return nil
}

func line(p *plot.Plot, name string, points plotter.XYs, c color.Color, legend, dashed bool) error {
	l, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return fmt.Errorf("plot of %s: %w", name, err)
	}
	l.Color, l.Width = c, vg.Points(1.5)
	dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, vg.Points(2)
	p.Add(l)
	if dashed {
		l.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	} else {
		p.Add(dots)
	}
	if legend {
		p.Legend.Add(name, l)
	}
	return nil
}

// sizeTicks marks every power of 16 from 4 bytes.
func sizeTicks(low, high float64) (ticks []plot.Tick) {
	for v := 4; float64(v) <= high; v *= 16 {
		if float64(v) >= low {
			ticks = append(ticks, plot.Tick{Value: float64(v), Label: bench.Size(v)})
		}
	}
	return ticks
}

// decadeTicks marks every power of 10 by its engineering name.
func decadeTicks(low, high float64) (ticks []plot.Tick) {
	for e := int(math.Round(math.Log10(low))); e <= int(math.Round(math.Log10(high))); e++ {
		ticks = append(ticks, plot.Tick{Value: math.Pow(10, float64(e)), Label: decade(e)})
	}
	return ticks
}

// decade writes 10^e as 100 µ, 1 m, 10 G.
func decade(e int) string {
	prefixes := map[int]string{-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}
	thousands := int(math.Floor(float64(e) / 3))
	prefix, ok := prefixes[thousands]
	if !ok {
		return fmt.Sprintf("1e%d", e)
	}
	return fmt.Sprintf("%.0f %s", math.Pow(10, float64(e-3*thousands)), prefix)
}

package main

import (
	"cmp"
	"fmt"
	"image/color"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// row is a shape with what it cost.
type row struct {
	shape
	cost
}

// series is a line of the picture: a figure of the rows with or without cache.
type series struct {
	name   string
	cached bool
	colour color.RGBA
	figure func(r row) float64
}

var drawn = []series{
	{"bytes up a link, no cache", false, color.RGBA{213, 94, 0, 255}, func(r row) float64 { return float64(r.linkUp) }},
	{"bytes up a link, cached", true, color.RGBA{230, 159, 0, 255}, func(r row) float64 { return float64(r.linkUp) }},
	{"frames per host, no cache", false, color.RGBA{0, 114, 178, 255}, func(r row) float64 { return float64(r.frames) / float64(r.hosts) }},
	{"frames per host, cached", true, color.RGBA{86, 180, 233, 255}, func(r row) float64 { return float64(r.frames) / float64(r.hosts) }},
}

// picture draws two plots side by side, all axes logarithmic: over the number of
// hosts, and over the ranks of each.
func picture(rows []row, file string) error {
	canvas := vgsvg.New(28*vg.Centimeter, 11*vg.Centimeter)
	overHosts, err := draws("Over hosts of 8 ranks, 100 tensors", "hosts", rows,
		func(r row) (float64, bool) { return float64(r.hosts), r.perHost == 8 && r.tensors == 100 })
	if err != nil {
		return err
	}
	overRanks, err := draws("Over ranks per host on 64 hosts, 100 tensors", "ranks per host", rows,
		func(r row) (float64, bool) { return float64(r.perHost), r.hosts == 64 && r.tensors == 100 })
	if err != nil {
		return err
	}
	overHosts.Legend.Top, overHosts.Legend.Left = true, true
	for _, s := range drawn {
		overHosts.Legend.Add(s.name, &plotter.Line{LineStyle: draw.LineStyle{Color: s.colour, Width: vg.Points(1.5)}})
	}
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: vg.Centimeter, PadRight: vg.Centimeter / 2, PadTop: vg.Centimeter / 4, PadBottom: vg.Centimeter / 4, PadLeft: vg.Centimeter / 4}
	places := plot.Align([][]*plot.Plot{{overHosts, overRanks}}, tiles, draw.New(canvas))
	overHosts.Draw(places[0][0])
	overRanks.Draw(places[0][1])
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(out); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// draws makes a plot of the rows for which x says where they stand.
func draws(title, label string, rows []row, x func(r row) (float64, bool)) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, label, "a step"
	for _, s := range drawn {
		var points plotter.XYs
		for _, r := range rows {
			if at, ok := x(r); ok && r.cached == s.cached {
				points = append(points, plotter.XY{X: at, Y: s.figure(r)})
			}
		}
		if len(points) == 0 {
			continue
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		l, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("plot of %s: %w", s.name, err)
		}
		l.Color, l.Width, dots.Color, dots.Shape = s.colour, vg.Points(1.5), s.colour, draw.CircleGlyph{}
		p.Add(l, dots)
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(8), ticks(10)
	p.X.Min, p.X.Max = 1, 1024
	p.Y.Min, p.Y.Max = 1, 100000
	p.Add(plotter.NewGrid())
	return p, nil
}

// ticks marks the powers of step.
func ticks(step int) plot.TickerFunc {
	return func(low, high float64) (marks []plot.Tick) {
		for v := 1; float64(v) <= high; v *= step {
			marks = append(marks, plot.Tick{Value: float64(v), Label: fmt.Sprint(v)})
		}
		return marks
	}
}

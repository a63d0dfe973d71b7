package main

import (
	"cmp"
	"fmt"
	"image/color"
	"os"
	"slices"

	"github.com/gorovod/gorovod/internal/tools/chart"
)

// row is a shape with its costs.
type row struct {
	shape
	cost
}

// series is a line in the picture: one figure of the rows, with or without the cache.
type series struct {
	name   string
	cached bool
	colour color.RGBA
	figure func(r row) float64
}

var drawn = []series{
	{"bytes up a link, no cache", false, color.RGBA{213, 94, 0, 255}, func(r row) float64 { return float64(r.linkUp) }},
	{"bytes up a link, cached", true, color.RGBA{230, 159, 0, 255}, func(r row) float64 { return float64(r.linkUp) }},
	{"frames per host, no cache", false, color.RGBA{0, 114, 178, 255},
		func(r row) float64 { return float64(r.frames) / float64(r.hosts) }},
	{"frames per host, cached", true, color.RGBA{86, 180, 233, 255},
		func(r row) float64 { return float64(r.frames) / float64(r.hosts) }},
}

// picture draws two charts side by side: the costs over the number of hosts, and over the number of ranks per host.
func picture(rows []row, file string) error {
	overHosts := draws("Over hosts of 8 ranks, 100 tensors", "hosts", rows,
		func(r row) (float64, bool) { return float64(r.hosts), r.perHost == 8 && r.tensors == 100 })
	overHosts.Legend = true
	overRanks := draws("Over ranks per host on 64 hosts, 100 tensors", "ranks per host", rows,
		func(r row) (float64, bool) { return float64(r.perHost), r.hosts == 64 && r.tensors == 100 })
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := chart.Write(out, file, nil, overHosts, overRanks); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// draws makes a chart of the rows for which x returns a position on the horizontal axis.
func draws(title, label string, rows []row, x func(r row) (float64, bool)) chart.Panel {
	p := chart.Panel{Title: title}
	for _, s := range drawn {
		line := chart.Line{Name: s.name, Colour: s.colour}
		for _, r := range rows {
			if at, ok := x(r); ok && r.cached == s.cached {
				line.Points = append(line.Points, [2]float64{at, s.figure(r)})
			}
		}
		if len(line.Points) == 0 {
			continue
		}
		slices.SortFunc(line.Points, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
		p.Lines = append(p.Lines, line)
	}
	p.X = chart.Axis{Label: label, Low: 1, High: 1024, Ticks: ticks(8, 1024)}
	p.Y = chart.Axis{Label: "a step", Low: 1, High: 1e5, Ticks: ticks(10, 1e5)}
	return p
}

// ticks marks the powers of step.
func ticks(step, high int) (marks []chart.Tick) {
	for v := 1; v <= high; v *= step {
		marks = append(marks, chart.Tick{At: float64(v), Label: fmt.Sprint(v)})
	}
	return marks
}

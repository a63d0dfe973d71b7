package main

import (
	"image/color"
	"math"
	"os"

	"github.com/gorovod/gorovod/internal/tools/bench"
	"github.com/gorovod/gorovod/internal/tools/chart"
)

// Colours that colour-blind readers can tell apart, too.
var (
	blue   = color.RGBA{0, 114, 178, 255}
	sky    = color.RGBA{86, 180, 233, 255}
	orange = color.RGBA{230, 159, 0, 255}
	red    = color.RGBA{213, 94, 0, 255}
	green  = color.RGBA{0, 158, 115, 255}
)

// draw draws what small and large allreduces and the launcher cost the busiest host, each over the number of ranks.
func (c *curves) draw(file string) error {
	if err := chart.Check(file); err != nil {
		return err
	}
	var panels []chart.Chart
	small := costsPanel("One allreduce of 4 B", "bytes and messages that the busiest host sends")
	for _, look := range []struct {
		what            string
		bytes, messages color.RGBA
	}{{usualJourney, red, orange}, {oneJourney, blue, sky}} {
		small.Lines = append(small.Lines,
			c.line(look.what+": bytes", look.bytes, look.what, smallBytes, func(p passed) int { return p.out }),
			c.line(look.what+": messages", look.messages, look.what, smallBytes, func(p passed) int { return p.sent }))
	}
	large := costsPanel("One large allreduce", "bytes that the busiest host sends")
	for i, bytes := range largeBytes {
		large.Lines = append(large.Lines, c.line(bench.Size(bytes), []color.RGBA{sky, blue}[i], largeData, bytes,
			func(p passed) int { return p.out }))
	}
	start := costsPanel("The launcher", "bytes that the launcher's host sends or gets")
	for _, look := range []struct {
		name   string
		colour color.RGBA
		figure func(l launcherCost) int
	}{{"start, sent", red, func(l launcherCost) int { return l.start.out }},
		{"a long wait, sent", orange, func(l launcherCost) int { return l.wait.out }},
		{"figures a second, got", green, func(l launcherCost) int { return l.news.in }}} {
		line := chart.Line{Name: look.name, Colour: look.colour}
		for _, l := range c.launchers {
			line.Points = append(line.Points, [2]float64{float64(l.hosts * l.perHost),
				float64(look.figure(l.launcherCost))})
		}
		start.Lines = append(start.Lines, line)
	}
	for _, p := range []*chart.Panel{&small, &large, &start} {
		if fit(p) {
			panels = append(panels, *p)
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := chart.Write(out, file, nil, panels...); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// line is a figure of the allreduces of one kind and size.
func (c *curves) line(name string, colour color.RGBA, what string, bytes int, figure func(p passed) int) chart.Line {
	line := chart.Line{Name: name, Colour: colour}
	for _, a := range c.allreduces {
		if a.what == what && a.bytes == bytes {
			line.Points = append(line.Points, [2]float64{float64(a.hosts * a.perHost), float64(figure(a.most))})
		}
	}
	return line
}

func costsPanel(title, y string) chart.Panel {
	return chart.Panel{Title: title, Legend: true, X: chart.Axis{Label: "ranks, 8 on a host", Low: 8, High: 4096,
		Ticks: ticks(8, 4096)[1:]}, Y: chart.Axis{Label: y}}
}

// fit leaves out lines without points, and makes the vertical axis hold the others. It returns false if none is left.
func fit(p *chart.Panel) bool {
	low, high := math.Inf(1), math.Inf(-1)
	lines := p.Lines
	p.Lines = nil
	for _, l := range lines {
		if len(l.Points) == 0 {
			continue
		}
		p.Lines = append(p.Lines, l)
		for _, at := range l.Points {
			low, high = min(low, at[1]), max(high, at[1])
		}
	}
	if len(p.Lines) == 0 || low <= 0 {
		return false
	}
	p.Y.Low, p.Y.High = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
	if p.Y.Low == p.Y.High {
		p.Y.High *= 10
	}
	for v := p.Y.Low; v <= p.Y.High*1.01; v *= 10 {
		p.Y.Ticks = append(p.Y.Ticks, chart.Tick{At: v, Label: amount(int(v))})
	}
	return true
}

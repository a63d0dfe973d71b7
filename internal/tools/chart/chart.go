// Package chart draws lines over logarithmic axes, and bars, as SVG or PNG. It does only that, so that it fits into the
// launcher: a plotting library with its fonts would double the launcher's size.
package chart

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"strings"
)

// Chart is one of several charts side by side: a Panel or Bars.
type Chart interface {
	// draw draws into the panelWidth pixels from x0 on.
	draw(c canvas, x0 float64)
}

// Panel is a chart of lines.
type Panel struct {
	Title string
	X, Y  Axis
	Lines []Line
	// Legend shows the names of the lines, in the upper left corner.
	Legend bool
}

// Axis is logarithmic, so both ends are above 0.
type Axis struct {
	Label     string
	Low, High float64
	Ticks     []Tick
}

// Tick is a mark on an axis, and a line of the grid.
type Tick struct {
	At    float64
	Label string
}

// Line joins points; x and y of each are above 0.
type Line struct {
	Name   string
	Points [][2]float64
	Colour color.RGBA
	Dashed bool // dashed, and without dots
}

// In units of one pixel of the SVG, which are two pixels of the PNG.
const (
	panelWidth, panelHeight   = 560, 480
	left, right, top, bottom  = 66, 20, 50, 48
	textSize                  = 13
	legendLine, legendLineGap = 26, 18
	captionGap                = 20
)

// canvas is the surface for panels. Lengths are in pixels of the SVG.
type canvas interface {
	line(x1, y1, x2, y2, width float64, c color.RGBA, dashed bool)
	dot(x, y, radius float64, c color.RGBA)
	rect(x, y, width, height float64, c color.RGBA)
	// text stands on y; anchor is 0 if x is its beginning, 0.5 its middle, 1 its end.
	text(x, y, anchor float64, text string)
	writeTo(w io.Writer) error
}

// Formats are the endings of the file names that Write accepts.
const Formats = ".svg or .png"

// Check returns an error if Write cannot write a file of this name.
func Check(file string) error {
	if ext := strings.ToLower(filepath.Ext(file)); ext != ".svg" && ext != ".png" {
		return fmt.Errorf("%s: a name that ends in %s is needed", file, Formats)
	}
	return nil
}

// Write draws the charts, and below them the captions, a line each. The name of file decides the format. An SVG is dark
// where its reader prefers dark pages.
func Write(w io.Writer, file string, captions []string, charts ...Chart) error {
	if err := Check(file); err != nil {
		return err
	}
	width := panelWidth * len(charts)
	height := panelHeight + captionGap*len(captions)
	var c canvas = newSVG(width, height)
	if strings.EqualFold(filepath.Ext(file), ".png") {
		var err error
		if c, err = newPNG(width, height); err != nil {
			return err
		}
	}
	for i, chart := range charts {
		chart.draw(c, float64(i*panelWidth))
	}
	for i, text := range captions {
		c.text(left, float64(panelHeight+captionGap*i)+textSize, 0, text)
	}
	return c.writeTo(w)
}

var (
	black = color.RGBA{A: 255}
	grey  = color.RGBA{221, 221, 221, 255}
)

func (p Panel) draw(c canvas, x0 float64) {
	west, east, north, south := x0+left, x0+panelWidth-right, float64(top), float64(panelHeight-bottom)
	x := func(v float64) float64 { return west + p.X.part(v)*(east-west) }
	y := func(v float64) float64 { return south - p.Y.part(v)*(south-north) }
	c.text((west+east)/2, 22, 0.5, p.Title)
	c.text(x0+8, top-12, 0, p.Y.Label)
	c.text((west+east)/2, panelHeight-10, 0.5, p.X.Label)
	for _, t := range p.X.Ticks {
		c.line(x(t.At), north, x(t.At), south, 1, grey, false)
		c.text(x(t.At), south+18, 0.5, t.Label)
	}
	for _, t := range p.Y.Ticks {
		c.line(west, y(t.At), east, y(t.At), 1, grey, false)
		c.text(west-6, y(t.At)+4, 1, t.Label)
	}
	c.line(west, south, east, south, 1, black, false)
	c.line(west, north, west, south, 1, black, false)
	for _, l := range p.Lines {
		for i, at := range l.Points {
			if i > 0 {
				before := l.Points[i-1]
				c.line(x(before[0]), y(before[1]), x(at[0]), y(at[1]), 1.8, l.Colour, l.Dashed)
			}
			if !l.Dashed {
				c.dot(x(at[0]), y(at[1]), 3, l.Colour)
			}
		}
	}
	if !p.Legend {
		return
	}
	for i, l := range p.Lines {
		at := north + legendLineGap*float64(i+1)
		c.line(west+10, at-4, west+10+legendLine, at-4, 1.8, l.Colour, l.Dashed)
		c.text(west+16+legendLine, at, 0, l.Name)
	}
}

// part is the position of v between the ends of the axis, from 0 to 1.
func (a *Axis) part(v float64) float64 {
	return math.Log(v/a.Low) / math.Log(a.High/a.Low)
}

package chart

import "image/color"

// Bars is a chart of horizontal bars, one below the other, from 0 on.
type Bars struct {
	Title string
	// Note stands below the title: what is measured, and which way is better.
	Note string
	Bars []Bar
}

// Bar is a bar, with its name above it and its value behind it.
type Bar struct {
	Name   string
	Value  float64 // not negative; all bars of a chart have one unit
	Label  string  // the value with its unit
	Colour color.RGBA
}

const (
	barHeight, barGap = 22, 34 // the gap above a bar has its name
	labelRoom         = 80     // behind the longest bar, for its label
)

func (b Bars) draw(c canvas, x0 float64) {
	west, east := x0+left, x0+panelWidth-right-labelRoom
	c.text((x0+left+x0+panelWidth-right)/2, 22, 0.5, b.Title)
	c.text((x0+left+x0+panelWidth-right)/2, top-8, 0.5, b.Note)
	longest := 0.0
	for _, bar := range b.Bars {
		longest = max(longest, bar.Value)
	}
	for i, bar := range b.Bars {
		y := float64(top + (barHeight+barGap)*i + barGap)
		length := 0.0
		if longest > 0 {
			length = (east - west) * bar.Value / longest
		}
		c.text(west, y-6, 0, bar.Name)
		c.rect(west, y, length, barHeight, bar.Colour)
		c.text(west+length+8, y+barHeight-6, 0, bar.Label)
	}
}

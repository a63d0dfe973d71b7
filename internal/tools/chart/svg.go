package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
)

// svg is a canvas whose viewer sets the text.
type svg struct{ bytes.Buffer }

func newSVG(width, height int) *svg {
	s := &svg{}
	fmt.Fprintf(s,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="%d">`+"\n", width, height, textSize)
	s.WriteString(dark)
	fmt.Fprintf(s, `<rect class="paper" width="%d" height="%d" fill="white"/>`+"\n", width, height)
	return s
}

// dark replaces the colours of paper, text, axes and grid where the reader prefers dark pages.
const dark = `<style>@media (prefers-color-scheme: dark) { text { fill: #d1d7e0 } .paper { fill: #0d1117 } ` +
	`.axis { stroke: #d1d7e0 } .grid { stroke: #3d444d } }</style>` + "\n"

// classes of lines that are dark on light paper and light on dark paper.
var classes = map[color.RGBA]string{black: ` class="axis"`, grey: ` class="grid"`}

func (s *svg) line(x1, y1, x2, y2, width float64, c color.RGBA, dashed bool) {
	dashes := ""
	if dashed {
		dashes = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g"%s%s/>`+"\n", x1, y1,
		x2, y2, hex(c), width, dashes, classes[c])
}

func (s *svg) rect(x, y, width, height float64, c color.RGBA) {
	fmt.Fprintf(s, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, width, height, hex(c))
}

func (s *svg) dot(x, y, radius float64, c color.RGBA) {
	fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="%g" fill="%s"/>`+"\n", x, y, radius, hex(c))
}

func (s *svg) text(x, y, anchor float64, text string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, map[float64]string{0: "start", 0.5: "middle",
		1: "end"}[anchor])
	xml.EscapeText(s, []byte(text))
	s.WriteString("</text>\n")
}

func (s *svg) writeTo(w io.Writer) error {
	s.WriteString("</svg>\n")
	_, err := s.WriteTo(w)
	return err
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

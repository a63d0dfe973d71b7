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
	fmt.Fprintf(s, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	return s
}

func (s *svg) line(x1, y1, x2, y2, width float64, c color.RGBA, dashed bool) {
	dashes := ""
	if dashed {
		dashes = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g"%s/>`+"\n", x1, y1, x2,
		y2, hex(c), width, dashes)
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

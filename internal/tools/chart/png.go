package chart

import (
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// pixels is a canvas with scale pixels for each pixel of the SVG, so that text is sharp.
type pixels struct {
	image *image.RGBA
	face  font.Face
}

const scale = 2

func newPNG(width, height int) (*pixels, error) {
	f, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, err
	}
	face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: scale * textSize, DPI: 72})
	if err != nil {
		return nil, err
	}
	p := &pixels{image.NewRGBA(image.Rect(0, 0, scale*width, scale*height)), face}
	draw.Draw(p.image, p.image.Bounds(), image.White, image.Point{}, draw.Src)
	return p, nil
}

// fill fills the shape between points, in the SVG's pixels.
func (p *pixels) fill(c color.RGBA, points ...[2]float64) {
	low, high := points[0], points[0]
	for _, at := range points {
		for i := range at {
			low[i], high[i] = min(low[i], at[i]), max(high[i], at[i])
		}
	}
	origin := image.Pt(int(scale*low[0]), int(scale*low[1]))
	r := vector.NewRasterizer(int(scale*(high[0]-low[0]))+3, int(scale*(high[1]-low[1]))+3)
	for i, at := range points {
		x, y := float32(scale*at[0])-float32(origin.X), float32(scale*at[1])-float32(origin.Y)
		if i == 0 {
			r.MoveTo(x, y)
		} else {
			r.LineTo(x, y)
		}
	}
	r.ClosePath()
	r.Draw(p.image, r.Bounds().Add(origin), image.NewUniform(c), image.Point{})
}

func (p *pixels) line(x1, y1, x2, y2, width float64, c color.RGBA, dashed bool) {
	length := math.Hypot(x2-x1, y2-y1)
	if length == 0 {
		return
	}
	dx, dy := (x2-x1)/length, (y2-y1)/length
	on, period := length, length
	if dashed {
		on, period = 6, 10
	}
	side := [2]float64{-dy * width / 2, dx * width / 2}
	for at := 0.0; at < length; at += period {
		end := min(at+on, length)
		bx, by, ex, ey := x1+dx*at, y1+dy*at, x1+dx*end, y1+dy*end
		p.fill(c, [2]float64{bx + side[0], by + side[1]}, [2]float64{ex + side[0], ey + side[1]},
			[2]float64{ex - side[0], ey - side[1]}, [2]float64{bx - side[0], by - side[1]})
	}
}

func (p *pixels) dot(x, y, radius float64, c color.RGBA) {
	points := make([][2]float64, 24)
	for i := range points {
		angle := 2 * math.Pi * float64(i) / float64(len(points))
		points[i] = [2]float64{x + radius*math.Cos(angle), y + radius*math.Sin(angle)}
	}
	p.fill(c, points...)
}

func (p *pixels) rect(x, y, width, height float64, c color.RGBA) {
	p.fill(c, [2]float64{x, y}, [2]float64{x + width, y}, [2]float64{x + width, y + height}, [2]float64{x, y + height})
}

func (p *pixels) text(x, y, anchor float64, text string) {
	d := font.Drawer{Dst: p.image, Src: image.Black, Face: p.face}
	width := float64(d.MeasureString(text)) / 64
	d.Dot = fixed.Point26_6{X: fixed.Int26_6(64 * (scale*x - anchor*width)), Y: fixed.Int26_6(64 * scale * y)}
	d.DrawString(text)
}

func (p *pixels) writeTo(w io.Writer) error { return png.Encode(w, p.image) }

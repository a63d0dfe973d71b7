package chart

import (
	"bytes"
	"encoding/xml"
	"image/color"
	"image/png"
	"io"
	"strings"
	"testing"
)

var red = color.RGBA{255, 0, 0, 255}

// sample has a line from the lower left corner to the upper right one.
var sample = Panel{Title: "Title & more", Legend: true, X: Axis{"bytes", 1, 100, []Tick{{1, "one"}, {100, "100"}}},
	Y: Axis{"seconds", 1, 1e4, []Tick{{100, "middle"}}}, Lines: []Line{{"a <line>", [][2]float64{{1, 1}, {100, 1e4}},
		red, false}, {"limit", [][2]float64{{1, 100}, {100, 100}}, black, true}}}

func TestSVG(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, "x.SVG", []string{"whose <figures>"}, sample, sample); err != nil {
		t.Fatal(err)
	}
	texts := strings.Builder{}
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v: %s", err, &b)
		}
		if text, ok := token.(xml.CharData); ok {
			texts.Write(text)
		}
	}
	for _, text := range []string{"Title & more", "bytes", "seconds", "one", "middle", "a <line>", "limit"} {
		if strings.Count(texts.String(), text) != 2 {
			t.Errorf("%q is not there twice: %s", text, &texts)
		}
	}
	if !strings.Contains(texts.String(), "whose <figures>") {
		t.Errorf("no caption: %s", &texts)
	}
	// The line goes from corner to corner, in the second panel, too.
	for _, corner := range []string{`x1="66.0" y1="432.0" x2="540.0" y2="50.0" stroke="#ff0000"`,
		`x1="626.0" y1="432.0" x2="1100.0" y2="50.0" stroke="#ff0000"`} {
		if !strings.Contains(b.String(), corner) {
			t.Errorf("no %s in %s", corner, &b)
		}
	}
}

func TestPNG(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, "x.png", []string{"whose <figures>", "NOISE"}, sample); err != nil {
		t.Fatal(err)
	}
	image, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if size := image.Bounds().Size(); size.X != scale*panelWidth || size.Y != scale*(panelHeight+2*captionGap) {
		t.Errorf("%v", size)
	}
	at := func(x, y float64) color.RGBA {
		return color.RGBAModel.Convert(image.At(int(scale*x), int(scale*y))).(color.RGBA)
	}
	if c := at(66+474.0/4, 432-382.0/4); c != red {
		t.Errorf("no line at a quarter of its way, but %v", c)
	}
	if c := at(66+474.0/4, 432-382.0*3/4); c != (color.RGBA{255, 255, 255, 255}) {
		t.Errorf("%v where nothing is", c)
	}
	dark := 0
	for x := range scale * panelWidth {
		for y := range scale * 30 {
			if c := at(float64(x)/scale, float64(y)/scale); c.R < 100 {
				dark++
			}
		}
	}
	if dark < 200 {
		t.Errorf("the title has %d dark pixels", dark)
	}
}

func TestBars(t *testing.T) {
	bars := Bars{"Gradients", "less is better", []Bar{{"ours", 1, "1 ms", red}, {"theirs", 4, "4 ms", red},
		{"none", 0, "0 ms", red}}}
	var b bytes.Buffer
	if err := Write(&b, "x.svg", nil, sample, bars); err != nil {
		t.Fatal(err)
	}
	// The second chart begins at 560; the longest bar leaves room for its label.
	for _, part := range []string{`width="394.0" height="22.0" fill="#ff0000"`, `width="98.5" height="22.0"`,
		`width="0.0" height="22.0"`, `<rect x="626.0" y="84.0"`, ">theirs<", ">4 ms<", ">less is better<",
		"prefers-color-scheme: dark", `class="axis"`} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("no %s in %s", part, &b)
		}
	}
	b.Reset()
	if err := Write(&b, "x.png", nil, bars); err != nil {
		t.Fatal(err)
	}
	image, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	for x, want := range map[int]color.RGBA{66 + 90: red, 66 + 110: {255, 255, 255, 255}} {
		if c := color.RGBAModel.Convert(image.At(scale*x, scale*100)); c != want {
			t.Errorf("at %d: %v, want %v", x, c, want)
		}
	}
	if err := Write(&b, "x.svg", nil, Bars{}); err != nil || strings.Contains(b.String(), "NaN") {
		t.Errorf("without bars: %v", err)
	}
}

func TestFormats(t *testing.T) {
	for _, name := range []string{"x.pdf", "x", ""} {
		if err := Write(io.Discard, name, nil, sample); err == nil || !strings.Contains(err.Error(), ".svg or .png") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

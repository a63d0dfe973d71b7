package bench

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"github.com/gorovod/gorovod/internal/base/load"
	"github.com/gorovod/gorovod/internal/tools/chart"
)

// colours of the peers, in their order. Colour-blind readers can tell them apart, too.
var colours = []color.RGBA{{0, 114, 178, 255}, {86, 180, 233, 255}, {213, 94, 0, 255}, {0, 158, 115, 255},
	{204, 121, 167, 255}, {230, 159, 0, 255}}

// plot draws time and bandwidth of allreduce over the size, side by side, with a line for each contender. The name of
// file decides the format.
func (r *Report) plot(w io.Writer, file string) error {
	time, rate := r.panels()
	return chart.Write(w, file, r.captions(), time, rate)
}

// summarise draws the time of allreduce over the size, and beside it the time of the gradients of ResNet-50.
func (r *Report) summarise(w io.Writer, file string) error {
	time, _ := r.panels()
	return chart.Write(w, file, r.captions(), time, r.gradients())
}

// gradients are the times of the gradients of ResNet-50, a bar for each contender that has measured them.
func (r *Report) gradients() chart.Bars {
	bars := chart.Bars{Title: fmt.Sprintf("Gradients of ResNet-50 on %d ranks: time", r.Ranks),
		Note: "161 tensors, 102 MB; less is better"}
	for i, p := range r.Peers {
		for _, x := range r.Results {
			if x.Peer == p.Name && x.Task == nameResNet {
				bars.Bars = append(bars.Bars, chart.Bar{Name: label(p.Name), Value: x.Time.Median,
					Label: seconds(x.Time.Median), Colour: colours[i%len(colours)]})
			}
		}
	}
	return bars
}

// panels are time and bandwidth of allreduce over the size.
func (r *Report) panels() (time, rate chart.Panel) {
	time = chart.Panel{Title: fmt.Sprintf("Allreduce on %d ranks: time", r.Ranks), Legend: true}
	rate = chart.Panel{Title: "Bandwidth of the algorithm"}
	for i, p := range r.Peers {
		times := chart.Line{Name: label(p.Name), Colour: colours[i%len(colours)]}
		rates := times
		for _, x := range r.Results {
			if x.Peer == p.Name && x.Task == TaskAllreduce {
				times.Points = append(times.Points, [2]float64{float64(x.Bytes), x.Time.Median})
				rates.Points = append(rates.Points, [2]float64{float64(x.Bytes), x.AlgBW})
			}
		}
		if len(times.Points) > 0 {
			time.Lines, rate.Lines = append(time.Lines, times), append(rate.Lines, rates)
		}
	}
	if limit := r.Limits.Allreduce; limit > 0 {
		times, rates := chart.Line{Name: "limit", Dashed: true, Colour: color.RGBA{A: 255}}, chart.Line{Name: "limit",
			Dashed: true, Colour: color.RGBA{A: 255}}
		for _, x := range r.Results {
			if x.Peer == PeerGo && x.Task == TaskAllreduce && x.Bytes >= LimitFrom {
				times.Points = append(times.Points, [2]float64{float64(x.Bytes), float64(x.Bytes) / limit})
				rates.Points = append(rates.Points, [2]float64{float64(x.Bytes), limit})
			}
		}
		if len(times.Points) > 0 {
			time.Lines, rate.Lines = append(time.Lines, times), append(rate.Lines, rates)
		}
	}
	for _, p := range []*chart.Panel{&time, &rate} {
		p.X, p.Y = axes(p.Lines)
	}
	time.Y.Label, rate.Y.Label = "seconds", "bytes per second"
	return time, rate
}

// captions say whose figures the picture shows: a picture travels without the table.
func (r *Report) captions() []string {
	m := r.Machine
	said := []string{fmt.Sprintf("gorovod %s on %s, %s: %d ranks on %s, %s", r.Gorovod, m.Host,
		r.Started.Format("2006-01-02 15:04 MST"), r.Ranks, load.Cores(m.Usable), m.CPU)}
	for _, why := range r.Noise {
		said = append(said, "NOISE: "+why)
	}
	return said
}

// axes are wide enough for all points of the lines. x is in bytes, y in whole powers of ten.
func axes(lines []chart.Line) (x, y chart.Axis) {
	x, y = chart.Axis{Label: "bytes", Low: math.Inf(1)}, chart.Axis{Low: math.Inf(1)}
	for _, l := range lines {
		for _, at := range l.Points {
			x.Low, x.High = min(x.Low, at[0]), max(x.High, at[0])
			y.Low, y.High = min(y.Low, at[1]), max(y.High, at[1])
		}
	}
	if x.Low > x.High { // without data the axes still need a range for their logarithms
		x.Low, x.High, y.Low, y.High = 1, 10, 1, 10
	}
	if x.Low == x.High {
		x.High *= 2
	}
	low, high := int(math.Floor(math.Log10(y.Low))), int(math.Ceil(math.Log10(y.High*(1+1e-12))))
	if low == high {
		high++
	}
	y.Low, y.High = math.Pow(10, float64(low)), math.Pow(10, float64(high))
	for e := low; e <= high; e++ {
		y.Ticks = append(y.Ticks, chart.Tick{At: math.Pow(10, float64(e)), Label: decade(e)})
	}
	for v := 4; float64(v) <= x.High; v *= 16 { // every power of 16 from 4 bytes
		if float64(v) >= x.Low {
			x.Ticks = append(x.Ticks, chart.Tick{At: float64(v), Label: Size(v)})
		}
	}
	return x, y
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

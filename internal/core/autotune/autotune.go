// Package autotune searches for the settings with which a job's allreduces move the most bytes in a given time:
// Bayesian optimisation with a Gaussian process. It is pure. The engine tells a Meter what it has executed and when. It
// tells a Search the score of a point, and the Search returns the next point to try. There are no goroutines, clocks or
// files inside. Package engine applies the settings.
package autotune

import (
	"fmt"
	"math"
)

// Param is one setting and the range that is searched.
type Param struct {
	Name      string // of its column in the log
	Low, High float64
	// Log: equal ratios count as equal distances. Then Low is above 0.
	Log bool
	// Switch: only Low and High are possible, off and on.
	Switch bool
	// Whole: rounded to an integer.
	Whole bool
	// Default is the value without tuning, from Low to High.
	Default float64
}

// check returns an error if p is inconsistent.
func (p *Param) check() error {
	switch {
	case !(p.Low < p.High) || math.IsInf(p.High-p.Low, 0):
		return fmt.Errorf("autotune: %s: from %v to %v is no range", p.Name, p.Low, p.High)
	case p.Log && p.Low <= 0:
		return fmt.Errorf("autotune: %s: a logarithmic range can't start at %v", p.Name, p.Low)
	case !(p.Default >= p.Low && p.Default <= p.High):
		return fmt.Errorf("autotune: %s: the default %v is outside %v to %v", p.Name, p.Default, p.Low, p.High)
	}
	return nil
}

// unit maps a value of p to 0…1.
func (p *Param) unit(v float64) float64 {
	if p.Log {
		return math.Log(v/p.Low) / math.Log(p.High/p.Low)
	}
	return (v - p.Low) / (p.High - p.Low)
}

// value is the inverse of unit, rounded to a possible value of p.
func (p *Param) value(u float64) float64 {
	u = min(max(u, 0), 1)
	var v float64
	switch {
	case p.Switch && u < 0.5:
		return p.Low
	case p.Switch:
		return p.High
	case p.Log:
		v = p.Low * math.Pow(p.High/p.Low, u)
	default:
		v = p.Low + u*(p.High-p.Low)
	}
	if p.Whole {
		v = math.Round(v)
	}
	return min(max(v, p.Low), p.High)
}

// Point is a value for each Param, in their order.
type Point []float64

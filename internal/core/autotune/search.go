package autotune

import (
	"errors"
	"math"
	"math/rand/v2"

	"github.com/gorovod/gorovod/internal/core/trial"
)

const (
	// samplesPerPoint is the number of samples of a point. Its score is their median.
	samplesPerPoint = 5
	// exploring is the number of points, besides the defaults, that are spread over the range before the process
	// decides.
	exploring = 4
	// confirmations is how often the best point and the defaults are each measured again, in turn, before the best is
	// kept.
	confirmations = 3
)

// Options shape a Search. The numbers are Horovod's.
type Options struct {
	Params []Param
	// Warmup is the number of points that are measured at the defaults and forgotten.
	Warmup int
	// Points is the number of points to measure, without Warmup and the confirmation at the end; at least 1.
	Points int
	// Noise is the variance of a score in addition to the variance of its samples.
	Noise float64
	// Seed makes the search repeatable.
	Seed uint64
}

// Trial is a point that has been measured.
type Trial struct {
	Point Point
	Score float64
}

// Search decides what to try next. It is not safe for concurrent use.
type Search struct {
	o      Options
	random *rand.Rand

	current Point
	samples []float64
	warmup  int
	trials  []Trial
	units   [][]float64 // trials' points in the unit cube
	scores  []float64
	errs    []float64 // variances of the scores

	best     int // index in trials
	confirm  int // measurements that the confirmation has made
	again    [2][]float64
	finished bool
}

// NewSearch starts at the defaults.
func NewSearch(o Options) (*Search, error) {
	if len(o.Params) == 0 {
		return nil, errors.New("autotune: every setting is fixed; there is nothing to tune")
	}
	for i := range o.Params {
		if err := o.Params[i].check(); err != nil {
			return nil, err
		}
	}
	o.Points = max(1, o.Points)
	s := &Search{o: o, random: random(o.Seed), warmup: o.Warmup}
	s.current = s.defaults()
	return s, nil
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x676f726f766f64)) }

func (s *Search) defaults() Point {
	d := make(Point, len(s.o.Params))
	for i := range s.o.Params {
		d[i] = s.o.Params[i].Default
	}
	return d
}

// Current is the point whose samples Observe waits for. When the search has finished, it is the point to keep. Do not
// change it.
func (s *Search) Current() Point { return s.current }

// Finished reports that Current will not change any more.
func (s *Search) Finished() bool { return s.finished }

// Trials are the points measured so far, without warm-up. The last one has just ended, and its score is the median of
// its samples.
func (s *Search) Trials() []Trial { return s.trials }

// Best is the best trial so far, as far as is known.
func (s *Search) Best() Trial {
	if len(s.trials) == 0 {
		return Trial{Point: s.current}
	}
	return s.trials[s.best]
}

// Observe takes a sample of Current, in any unit in which more is better. It reports whether this sample was the last
// one of the point: then Current is another point, perhaps an equal one. In that case the call takes some milliseconds,
// and a tenth of a second after 50 points.
func (s *Search) Observe(score float64) (ended bool) {
	if s.finished || math.IsNaN(score) || math.IsInf(score, 0) {
		return false
	}
	s.samples = append(s.samples, score)
	if len(s.samples) < samplesPerPoint {
		return false
	}
	samples := s.samples
	s.samples = nil
	median := trial.Median(samples)
	switch {
	case s.warmup > 0:
		s.warmup--
	case len(s.trials) < s.o.Points:
		s.enter(median, variance(samples)/samplesPerPoint)
	default:
		s.again[s.confirm%2] = append(s.again[s.confirm%2], median)
		s.confirm++
	}
	s.current = s.next()
	return true
}

// GiveUp finishes the search with the defaults, which are the first trial.
func (s *Search) GiveUp() { s.current, s.best, s.finished = s.defaults(), 0, true }

func (s *Search) enter(score, variance float64) {
	u := make([]float64, len(s.current))
	for i, v := range s.current {
		u[i] = s.o.Params[i].unit(v)
	}
	s.trials = append(s.trials, Trial{s.current, score})
	s.units, s.scores, s.errs = append(s.units, u), append(s.scores, score), append(s.errs, variance+s.o.Noise)
	if score > s.trials[s.best].Score {
		s.best = len(s.trials) - 1
	}
}

// next chooses the next point, after a point has ended.
func (s *Search) next() Point {
	n := len(s.trials)
	switch {
	case s.warmup > 0 || n == 0:
		return s.defaults()
	case n < s.o.Points && n <= exploring:
		return s.halton(n)
	case n < s.o.Points:
		return s.promising()
	default:
		return s.confirmed()
	}
}

// promising is the point at which the process expects the greatest improvement.
func (s *Search) promising() Point {
	p, err := condition(s.units, s.scores, s.errs)
	if err != nil {
		return s.halton(len(s.trials))
	}
	return s.point(p.mostPromising(s.random))
}

// halton is the n-th point of a sequence that fills the cube evenly.
func (s *Search) halton(n int) Point {
	u := make([]float64, len(s.o.Params))
	for i := range u {
		u[i] = radicalInverse(n, primes[i%len(primes)])
	}
	return s.point(u)
}

var primes = [...]int{2, 3, 5, 7, 11, 13, 17, 19}

// radicalInverse mirrors the digits of n, in the given base, at the radix point: Halton's sequence.
func radicalInverse(n, base int) float64 {
	v, digit := 0.0, 1/float64(base)
	for ; n > 0; n /= base {
		v += float64(n%base) * digit
		digit /= float64(base)
	}
	return v
}

func (s *Search) point(u []float64) Point {
	p := make(Point, len(u))
	for i := range u {
		p[i] = s.o.Params[i].value(u[i])
	}
	return p
}

// confirmed is a trial (package trial): it measures the best point and the defaults again in turn. If the best point
// does not win, the defaults stay. So a point that won by luck, or while the machine was quiet, is not kept.
func (s *Search) confirmed() Point {
	best := s.trials[s.best].Point
	if s.best != 0 && s.confirm < 2*confirmations {
		if s.confirm%2 == 0 {
			return best
		}
		return s.defaults()
	}
	s.finished = true
	if s.best != 0 && trial.Better(1, [2]float64{-trial.Median(s.again[0]), -trial.Median(s.again[1])}, 1) == 1 {
		s.best = 0
	}
	return s.trials[s.best].Point
}

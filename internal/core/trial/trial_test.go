package trial

import "testing"

func TestLeast(t *testing.T) {
	var least int64
	for _, sample := range []int64{7, 9, 3, 5} {
		Least(&least, sample)
	}
	if least != 3 {
		t.Errorf("the least is %d, want 3", least)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		want    float64
	}{{[]float64{4}, 4}, {[]float64{9, -1}, -1}, {[]float64{5, 1, 900}, 5}, {[]float64{4, 1, 3, 2}, 2}} {
		if got := Median(c.samples); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.samples, got, c.want)
		}
	}
}

func TestTheOtherWayMustWinByTheMargin(t *testing.T) {
	for _, c := range []struct {
		used   int
		cost   [2]float64
		margin float64
		want   int
	}{
		{0, [2]float64{10, 10}, 1, 0}, {1, [2]float64{10, 10}, 1, 1}, // an equal cost is no reason to change
		{0, [2]float64{10, 9}, 1, 1}, {1, [2]float64{9, 10}, 1, 0},
		{0, [2]float64{11, 10}, 1.25, 0}, {1, [2]float64{10, 11}, 1.25, 1}, // better, but not by the margin
		{0, [2]float64{13, 10}, 1.25, 1}, {1, [2]float64{10, 13}, 1.25, 0},
		{0, [2]float64{1, 50}, 1.25, 0}, {1, [2]float64{50, 1}, 1.25, 1},
		{0, [2]float64{-3, -5}, 1, 1}, // scores, of which more are better, as negative costs
	} {
		if got := Better(c.used, c.cost, c.margin); got != c.want {
			t.Errorf("way %d is in use, costs %v, margin %v: way %d, want %d", c.used, c.cost, c.margin, got, c.want)
		}
	}
}

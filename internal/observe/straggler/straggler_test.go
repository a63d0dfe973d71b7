package straggler

import (
	"math/rand/v2"
	"testing"
)

// job is a window of ranks that compute for 60 % of the time, and wait for rank late for a share of it.
func job(ranks, late int, share float64, does func(*Share)) Window {
	w := make(Window, ranks)
	for i := range w {
		w[i] = Share{Busy: 0.1, Known: true, Running: 0.6, Looked: true, Link: 0.02, Sent: 2e7}
		if i != late {
			w[i].Waiting, w[i].Locked = share, share
		}
	}
	if late >= 0 {
		w[late].Late = share
		does(&w[late])
	}
	return w
}

func TestKinds(t *testing.T) {
	const lost = 0.2
	for kind, does := range map[Kind]func(*Share){
		Computes: func(s *Share) { s.Running += lost },
		Sleeps:   func(s *Share) { s.Asleep = lost },
		Reads:    func(s *Share) { s.Reading = lost },
		Locked:   func(s *Share) { s.Locked = lost + s.Busy },
		Starves:  func(s *Share) { s.Starved = lost },
		Blocked:  func(s *Share) { s.Looked = false },
		Unknown:  func(s *Share) { s.Known = false },
	} {
		for _, ranks := range []int{2, 4, 512} {
			w := job(ranks, 1, lost, does)
			v, ok := Find([]Window{w, w, w, w})
			if !ok || v.Rank != 1 || v.Kind != kind || v.Share < 0.19 || v.Share > 0.21 {
				t.Errorf("of %d ranks, rank 1 %s: %+v, %v", ranks, kind, v, ok)
			}
		}
	}
}

func TestASlowConnection(t *testing.T) {
	for _, ranks := range []int{2, 4} {
		w := job(ranks, -1, 0, nil)
		for i := range w {
			w[i].Busy = 0.5
		}
		w[1].Link, w[1].Sent = 0.45, 4.5e6
		if v, ok := Find([]Window{w, w, w, w}); !ok || v.Rank != 1 || v.Kind != SlowLink {
			t.Errorf("of %d ranks, rank 1 has a slow connection: %+v, %v", ranks, v, ok)
		}
		w[1].Sent = 4.5e8 // as fast as the others; it only sends more
		if v, ok := Find([]Window{w, w, w, w}); ok {
			t.Errorf("a rank that sends much is blamed: %+v", v)
		}
	}
}

// TestTheOtherEndOfASlowConnection checks two ranks over one connection that is slow in one direction. The sender is
// done before its data has arrived. The other rank gets it late, so it is late in the next step; its own connection
// never has data under way for a whole tick of the clock.
func TestTheOtherEndOfASlowConnection(t *testing.T) {
	sender := Share{Waiting: 0.22, Busy: 0.14, Known: true, Running: 0.4, Looked: true, Link: 0.32, Sent: 8e6}
	other := Share{Late: 0.22, Busy: 0.32, Known: true, Running: 0.7, Looked: true, Sent: 8e6}
	w := Window{other, sender}
	if v, ok := Find([]Window{w, w, w, w}); !ok || v.Rank != 1 || v.Kind != SlowLink {
		t.Errorf("%+v, %v", v, ok)
	}
	w[0].Busy, w[1].Busy = 0.05, 0.05 // nobody waits for the data
	if v, ok := Find([]Window{w, w, w, w}); !ok || v.Rank != 0 || v.Kind != Computes {
		t.Errorf("a rank that is late on its own account: %+v, %v", v, ok)
	}
}

func TestNobodyIsBlamed(t *testing.T) {
	idle := func(*Share) {}
	well, late := job(4, -1, 0, nil), job(4, 1, 0.3, idle)
	other := job(4, 2, 0.3, idle)
	both := job(4, 1, 0.3, idle)
	both[2].Late = 0.2
	always := func(w Window) []Window { return []Window{w, w, w, w} }
	crowded := job(4, 1, 0.15, func(s *Share) { s.Starved = 0.85 })
	for i := range crowded {
		crowded[i].Starved = max(0.8, crowded[i].Starved)
	}
	for name, windows := range map[string][]Window{
		"no rank gets a core":     always(crowded),
		"nothing is known":        nil,
		"too little is known":     {late, late, late},
		"one rank":                always(job(1, 0, 0.3, idle)),
		"all keep pace":           always(well),
		"once":                    {well, late, well, well},
		"long ago":                {late, late, late, late, well, well, well, well},
		"now one, now another":    {late, other, late, other},
		"two are late":            always(both),
		"too little to speak of":  always(job(4, 1, 0.03, idle)),
		"the job has become less": {job(8, 1, 0.3, idle), late, late, late},
	} {
		if v, ok := Find(windows); ok {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestOneWindowMayDiffer checks that a step that ends just after a second hides nothing.
func TestOneWindowMayDiffer(t *testing.T) {
	late, well := job(4, 1, 0.3, func(*Share) {}), job(4, -1, 0, nil)
	if v, ok := Find([]Window{late, well, late, late}); !ok || v.Rank != 1 {
		t.Errorf("%+v, %v", v, ok)
	}
}

// TestLost checks how much is lost if ranks are late in turn, by less and by more than a window, and that one wait does
// not count as many.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		lates     []float64
		low, high float64
	}{
		"nothing is known":           {nil, 0, 0},
		"too little is known":        {[]float64{0.3, 0.3, 0.3}, 0, 0},
		"each second":                {[]float64{0.3, 0.3, 0.3, 0.3}, 0.29, 0.31},
		"steps of two seconds":       {[]float64{0, 1.5, 0, 1.5, 0, 1.5, 0, 1.5}, 0.7, 0.85},
		"steps of three seconds":     {[]float64{2, 0, 0, 2, 0, 0, 2}, 0.6, 0.75},
		"all the time":               {[]float64{0, 2, 0, 2, 0, 2}, 0.9, 1},
		"moments":                    {[]float64{1e-5, 1e-5, 1e-5, 1e-5}, 0, 0},
		"one long wait":              {[]float64{1e-5, 0, 0, 10, 0, 0, 1e-5, 0, 0, 1e-5}, 0, 0},
		"one among short ones":       {[]float64{0.06, 0.06, 10, 0.06}, 0.05, 0.07},
		"one that began long before": {[]float64{0, 10, 0.06, 0.06, 0.06}, 0.05, 0.07},
	} {
		var windows []Window
		for i, late := range c.lates {
			w := job(4, -1, 0, nil)
			for k := range w {
				w[k].Busy, w[k].Link, w[k].Sent = 0, 0, 0
			}
			w[i%4].Late = late
			windows = append(windows, w)
		}
		if got := Lost(windows); got < c.low || got > c.high {
			t.Errorf("%s: %v, not between %v and %v", name, got, c.low, c.high)
		}
	}
}

// TestChance counts how often ranks are blamed that are late by chance: each step one of four at random, with eight
// steps a second, as when four ranks share two cores.
func TestChance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alarms := 0
	const runs = 2000
	for range runs {
		var windows []Window
		for range Windows {
			w := job(4, -1, 0, nil)
			for range 8 {
				w[rng.IntN(4)].Late += 0.05 * rng.Float64()
			}
			windows = append(windows, w)
		}
		if _, ok := Find(windows); ok {
			alarms++
		}
	}
	if alarms > runs/1000 {
		t.Errorf("%d of %d times a rank is blamed that is late by chance", alarms, runs)
	}
}

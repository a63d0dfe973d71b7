package driving

import "testing"

// looks returns how many looks without progress a new driver makes before it sleeps. Each yield takes no time.
func looks(j Job, c *Contention) (looks, yields int) {
	d := j.Begin(false, c)
	for looks = 1; ; looks++ {
		switch d.Nothing(false, false) {
		case Rest:
			return looks, yields
		case Yield, Check:
			yields++
			c.Yielded(0)
		}
	}
}

// After a slow yield, drivers sleep before they would yield: for twice as many sleeps each time, and half as many after
// each wait that quick yields have ended.
func TestDriversSleepAfterASlowYield(t *testing.T) {
	for _, j := range []Job{{}, {OneHost: true}, {Spin: true}, {Spin: true, OneHost: true}} {
		var c Contention
		calm, yields := looks(j, &c)
		if yields == 0 || c.Yielded(slowYield-1) {
			t.Fatalf("%+v: %d yields on an idle machine", j, yields)
		}
		sleeps := func(want int) {
			t.Helper()
			for i := range want {
				most := sharedPolls
				if j.Spin && j.OneHost {
					most = politePolls
				}
				if n, yields := looks(j, &c); n != most || yields > 0 {
					t.Fatalf("%+v: sleep %d of %d comes after %d looks and %d yields", j, i, want, n, yields)
				}
				d := j.Begin(false, &c)
				d.Woke(0)
			}
			if n, _ := looks(j, &c); n != calm {
				t.Fatalf("%+v: after %d sleeps the next comes after %d looks", j, want, n)
			}
		}
		for n := fewestSleeps; n <= 2*mostSleeps; n *= 2 {
			if !c.Yielded(slowYield) {
				t.Fatal("a slow yield is quick")
			}
			sleeps(min(n, mostSleeps))
		}
		for range 2 {
			d := j.Begin(false, &c)
			c.Yielded(0)
			d.Worked()
		}
		c.Yielded(slowYield)
		sleeps(mostSleeps / 2)
	}
}

// An operation that needs polls gets them, however slow the yields are.
func TestPolledOperationsArePolledAmongOtherPrograms(t *testing.T) {
	var c Contention
	c.Yielded(slowYield)
	d := Job{Spin: true, OneHost: true}.Begin(false, &c)
	for i := range polledPolls - 1 {
		if d.Nothing(true, false) == Rest {
			t.Fatalf("rests after %d looks", i+1)
		}
	}
}

// The background goroutine does as the other drivers.
func TestTheBackgroundSleepsAfterASlowYield(t *testing.T) {
	var c Contention
	c.Yielded(slowYield)
	j := Job{Spin: true, OneHost: true, SpareCores: true}
	b, _ := j.Kicked(Mood{}, &c)
	b.Seated(Mood{})
	for i := range politePolls - 1 {
		if a := b.Nothing(true, false, Mood{}); a != Poll {
			t.Fatalf("%v after %d looks", a, i+1)
		}
	}
	if a := b.Nothing(true, false, Mood{}); a != Rest {
		t.Errorf("%v after %d looks", a, politePolls)
	}
}

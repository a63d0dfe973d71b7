package driving

import "testing"

// A driver that waits only for the rest of long messages sleeps after few looks; while an operation needs polls, or
// for anything else, it polls on.
func TestBulkRestsEarly(t *testing.T) {
	for _, j := range []Job{{}, {Spin: true}, {Spin: true, SpareCores: true, OneHost: true}} {
		for _, c := range []struct {
			polled, bulk bool
			most         int // looks before the rest
		}{{false, true, bulkPolls}, {true, true, 2 * polledPolls}, {false, false, 2 * spinPolls}} {
			d, looks := j.Begin(false, new(Contention)), 1
			for d.Nothing(c.polled, c.bulk) != Rest {
				looks++
			}
			if looks > c.most || !c.bulk && looks <= bulkPolls || c.bulk && !c.polled && looks != bulkPolls {
				t.Errorf("%+v, %+v: %d looks", j, c, looks)
			}
			d.Woke(0)
			if j.Spin && d.Nothing(c.polled, c.bulk) == Rest {
				t.Errorf("%+v, %+v: no look after a sleep", j, c)
			}
		}
	}
}

package launch

import (
	"testing"
	"time"
)

// TestReadersShareAnswers checks that readers who ask seldom do not take answers away from the one who asks often.
func TestReadersShareAnswers(t *testing.T) {
	asked := 0
	q := &inquiry{ask: func() { asked++ }}
	often, seldom := q.unless(0), q.unless(time.Hour)
	for _, c := range []struct {
		ask  func()
		want int
	}{{seldom, 1}, {seldom, 1}, {often, 2}, {seldom, 2}, {often, 3}} {
		if c.ask(); asked != c.want {
			t.Errorf("asked %d times, not %d", asked, c.want)
		}
	}
	q.last = time.Now().Add(-time.Hour)
	if seldom(); asked != 4 {
		t.Error("nobody asks after an hour")
	}
}

package launch

import (
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/overview"
	"github.com/gorovod/gorovod/internal/rendezvous"
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

// TestReadersAreToldOfADeath checks that the death of a rank reaches the page's sentence, and a good end does not.
func TestReadersAreToldOfADeath(t *testing.T) {
	s := rendezvous.NewServer([]byte("key"), 3)
	a := &audience{overview: overview.New()}
	a.form(s, 3, &inquiry{ask: func() {}})
	defer a.overview.Follow()()
	over := make(chan struct{})
	defer close(over)
	go a.overview.Run(over)
	s.Died(rendezvous.Death{Rank: 0, Host: "h"})
	s.Died(rendezvous.Death{Rank: 1, Host: "h", Signal: 9})
	for {
		text, next := a.overview.Last(false)
		if text != nil {
			if !strings.Contains(string(text), "Rank 1 on h was killed by signal 9 (SIGKILL)") {
				t.Errorf("%s", text)
			}
			return
		}
		<-next
	}
}

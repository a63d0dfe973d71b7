package rendezvous

import (
	"context"
	"testing"
	"time"
)

// A member is silent once it has not answered for much longer than the members usually take.
func TestSilenceIsLongerThanUsual(t *testing.T) {
	for _, c := range []struct {
		took   time.Duration // by the others, to answer pings
		silent bool          // after 9 seconds without an answer
	}{{0, true}, {time.Millisecond, true}, {time.Second, true}, {5 * time.Second, false}} {
		srv, addr := serve(t, 4)
		all := joinAll(t, addr, 4)
		now := time.Now().Add(time.Hour)
		srv.mu.Lock()
		g := srv.gens[0]
		for r, p := range g.members {
			p.pulse = liveness{took: c.took}
			if r == 3 {
				p.pulse = liveness{asked: true, pinged: now.Add(-9 * time.Second), looked: now.Add(-9 * time.Second)}
			}
		}
		asker := g.members[0]
		srv.mu.Unlock()
		found := make(chan []Silence, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			select {
			case silent := <-all[0].beats:
				found <- silent
			case <-ctx.Done():
				found <- nil
			}
		}()
		srv.mu.Lock()
		srv.beat(asker, now)
		srv.mu.Unlock()
		silent := <-found
		if (len(silent) == 1 && silent[0].Rank == 3) != c.silent {
			t.Errorf("others take %v: silent are %v", c.took, silent)
		}
	}
}

// An answer says how long it took, and ends the silence.
func TestAnswersAreTimed(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var p liveness
	p.alive(at(0))
	if !p.look(at(5)) || p.look(at(9)) || p.silent != 4*time.Second {
		t.Errorf("%+v", p)
	}
	if p.alive(at(12)); p.took != 7*time.Second || p.silent != 0 || p.asked {
		t.Errorf("%+v", p)
	}
	if p.alive(at(20)); p.took != 7*time.Second {
		t.Errorf("a frame that nobody has asked for counts as an answer: %+v", p)
	}
}

package world

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// Ranks on several hosts measure the links between these, unless rank 0's setting says no. Ranks of one host do not.
func TestLinksAreMeasuredBetweenHosts(t *testing.T) {
	for transport, want := range map[string]bool{"on ab": true, "on aab": true, "on aa": false, "tcp": false} {
		for _, off := range []bool{false, true} {
			t.Run(transport, func(t *testing.T) {
				size := max(2, len(transport)-3)
				l := newLauncher(t, size)
				each(size, func(r int) {
					c := l.config(r, size, transport)
					c.MeasureLinks = !off || r > 0
					w, err := join(t.Context(), c, 1, quiet())
					if err != nil {
						t.Error(err)
						return
					}
					defer w.Leave(limit)
					if f := w.Figures().Hosts; (f != feed.Hosts{}) != (want && !off) {
						t.Errorf("rank %d of %q, off: %v: %+v", r, transport, off, f)
					}
				})
			})
		}
	}
}

// A rank that dies while the others measure ends that, with the words of the launcher's news.
func TestDeathWhileOthersMeasure(t *testing.T) {
	for _, transport := range []string{"on abc", "on abb"} {
		l := newLauncher(t, 3)
		began := time.Now()
		var others sync.WaitGroup
		others.Add(2)
		each(3, func(r int) {
			c, o := l.config(r, 3, transport), quiet()
			c.Timeout = limit
			if r == 2 {
				o.Devices = func(*World) engine.Devices { // the others have begun to measure, or do so soon
					time.Sleep(50 * time.Millisecond)
					l.Died(rendezvous.Death{Rank: r, Host: c.Told.Hostname, PID: 4321, Signal: 9})
					others.Wait()
					return nil
				}
			}
			w, err := join(t.Context(), c, 1, o)
			if r == 2 {
				if err == nil {
					t.Error("the dead rank has joined")
				}
				return
			}
			defer others.Done()
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			defer w.Leave(time.Second)
			want := "rank 2 on host " + transport[5:] + " (pid 4321) was killed by signal 9"
			if _, err := add(w, "x", 1); err == nil || !strings.Contains(err.Reason, want) {
				t.Errorf("rank %d: %v", r, err)
			}
		})
		if d := time.Since(began); d > soon {
			t.Errorf("it took %v", d)
		}
	}
}

package world

import (
	"log/slog"
	"testing"

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
					w, err := join(t.Context(), c, 1, Options{Log: slog.New(slog.DiscardHandler)})
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

package world

import (
	"slices"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"github.com/gorovod/gorovod/internal/observe/vitals"
)

// Figures are what this rank has counted so far, and its network interface. It is safe on any goroutine.
func (w *World) Figures() *feed.Figures {
	f := w.Engine.Figures()
	if n, ok := w.net.(transport.Addressed); ok {
		f.NIC = w.nic.of(n.Addresses())
	}
	return f
}

// figures are what this rank tells the launcher when somebody watches the job. With stack it tells where the program
// is.
func (w *World) figures(stack bool) []byte {
	w.telling.Lock()
	defer w.telling.Unlock()
	f := w.Figures()
	f.Resident = resident()
	f.CPU, f.Main = processor(), feed.Thread(w.vitals.Ask())
	f.Link = feed.Link(w.links.Busiest())
	if stack {
		for _, frame := range vitals.Stack() {
			f.Stack = append(f.Stack, feed.Frame(frame))
		}
	}
	f.Sets = w.ownSets()
	w.told.News(f)
	w.toldNaNs = f.NaNs
	p := f.Append(nil)
	if len(p) > feed.MaxBytes {
		return nil
	}
	return p
}

// ownSets are the process sets of which this rank is a member: see feed.Figures.Sets.
func (w *World) ownSets() (own []int) {
	for _, s := range w.Engine.Sets() {
		if s.ID != 0 && len(own) < feed.MostSets && slices.Contains(s.Ranks, w.Place.Rank) {
			own = append(own, s.ID)
		}
	}
	return own
}

// tellLast tells the launcher of NaNs that it has not heard of. With GOROVOD_NAN_CHECK=abort the world ends right after
// the first one, and an elastic job goes on in another world.
func (w *World) tellLast() {
	if w.session == nil {
		return
	}
	w.telling.Lock()
	news := w.Engine.Figures().NaNs > w.toldNaNs
	w.telling.Unlock()
	if news {
		w.session.TellLast(w.figures(false))
	}
}

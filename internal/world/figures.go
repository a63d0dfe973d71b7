package world

import "github.com/gorovod/gorovod/internal/feed"

// figures returns the figures that this rank tells the launcher while somebody watches the job. Calls do not overlap.
func (w *World) figures() []byte {
	f := w.Engine.Figures()
	f.Resident = resident()
	f.CPU, f.Main = processor(), feed.Thread(w.vitals.Ask())
	f.Link = feed.Link(w.links.Busiest())
	w.told.News(f)
	p := f.Append(nil)
	if len(p) > feed.MaxBytes {
		return nil
	}
	return p
}

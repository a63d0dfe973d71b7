package world

import (
	"github.com/gorovod/gorovod/internal/feed"
	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/internal/vitals"
)

// Figures are what this rank has counted so far, and its network interface. It is safe on any goroutine.
func (w *World) Figures() *feed.Figures {
	f := w.Engine.Figures()
	if n, ok := w.net.(transport.Addressed); ok {
		f.NIC = w.nic.of(n.Addresses())
	}
	return f
}

// figures are what this rank tells the launcher when somebody watches the job. One call ends before the next begins.
// With stack it tells where the program is.
func (w *World) figures(stack bool) []byte {
	f := w.Figures()
	f.Resident = resident()
	f.CPU, f.Main = processor(), feed.Thread(w.vitals.Ask())
	f.Link = feed.Link(w.links.Busiest())
	if stack {
		for _, frame := range vitals.Stack() {
			f.Stack = append(f.Stack, feed.Frame(frame))
		}
	}
	w.told.News(f)
	p := f.Append(nil)
	if len(p) > feed.MaxBytes {
		return nil
	}
	return p
}

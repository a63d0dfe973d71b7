package driver

import (
	"net"

	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// epoch is one world of workers, and its rendezvous.
type epoch struct {
	number    uint64
	server    *rendezvous.Server
	listeners []net.Listener
}

// close ends the rendezvous. Ranks that are still connected, for example stopped ones, lose their connection.
func (e *epoch) close() {
	e.server.Close()
	for _, l := range e.listeners {
		l.Close()
	}
}

// form opens an epoch's rendezvous and sends the members there. It closes the rendezvous of the last epoch, which all
// members of that epoch have left.
func (d *Driver) form(a membership.Form) error {
	listeners, addrs, err := d.o.Meet()
	if err != nil {
		return err
	}
	e := &epoch{number: a.Epoch, server: rendezvous.NewServer(elastic.EpochKey(d.o.Key, a.Epoch), len(a.Places)),
		listeners: listeners}
	e.server.Epoch, e.server.Certificates = a.Epoch, d.o.Certificates
	last := d.epoch
	if d.o.Serves != nil {
		words := ""
		if last != nil {
			if v := last.server.Verdict(); v != nil {
				words = v.Cause
			}
		}
		d.o.Serves(e.server, len(a.Places), a.Cause, words)
	}
	for _, l := range listeners {
		go e.server.Serve(l)
	}
	d.epoch, d.ranks = e, make(map[int]int, len(a.Places))
	for _, p := range a.Places {
		w := d.workers[p.Worker]
		w.epoch, w.rank = a.Epoch, p.Rank
		d.ranks[p.Worker] = p.Rank
		e.server.Started(p.Rank, w.host, w.pid)
	}
	for _, p := range a.Places {
		w := d.workers[p.Worker]
		d.tell(p.Worker, elastic.Message{Type: elastic.TypePlace, Number: w.number,
			Assignment: &elastic.Assignment{Epoch: a.Epoch, Place: p, Addrs: addrs(p.Host), Sync: a.Sync,
				Sets: a.Sets}})
	}
	if last != nil {
		go last.close()
	}
	return nil
}

// operations says, after a space, which operation a member of this epoch had to do when another one ended; empty if
// none has told.
func (d *Driver) operations() string {
	if d.epoch != nil {
		if v := d.epoch.server.Verdict(); v != nil {
			return v.View
		}
	}
	return ""
}

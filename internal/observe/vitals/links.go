package vitals

import (
	"maps"
	"sync"
)

// Links are this process's connections to other ranks. Its methods are safe on any goroutine.
type Links struct {
	mu    sync.Mutex
	open  map[int]traffic // by descriptor: its traffic at the last call of Busiest
	total Link
}

// Link is the connection that was busiest between the last two calls of Busiest.
type Link struct {
	To string // the address of its other end; "" if there is none
	// Busy and Bytes add up, over all calls, the work of the busiest connection: how long it had data under way, in
	// nanoseconds, and how many bytes it has sent.
	Busy, Bytes uint64
}

// traffic is the work of a connection.
type traffic struct{ us, bytes uint64 }

// Track notes each descriptor when it opens and before it closes. Some descriptors are not connections.
func (l *Links) Track(fd int, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !open {
		delete(l.open, fd)
		return
	}
	if l.open == nil {
		l.open = map[int]traffic{}
	}
	l.open[fd] = traffic{}
}

// Busiest is the busiest connection since the last call.
func (l *Links) Busiest() Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	var most traffic
	for fd, before := range maps.Clone(l.open) {
		now, ok := load(fd)
		if !ok {
			delete(l.open, fd)
			continue
		}
		l.open[fd] = now
		done := traffic{now.us - min(now.us, before.us), now.bytes - min(now.bytes, before.bytes)}
		if done.us > most.us || done.us == most.us && done.bytes > most.bytes {
			most = done
			l.total.To = peer(fd)
		}
	}
	l.total.Busy += most.us * 1000
	l.total.Bytes += most.bytes
	return l.total
}

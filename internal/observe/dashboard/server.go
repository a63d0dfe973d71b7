// Package dashboard is the page on which people see a job. Package overview decides what is on it, and package door who
// may read it. The page is one file without outside resources; it gets news by server-sent events. The engine and
// package hvd never import this package.
package dashboard

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/overview"
)

// Variable has the default of the page's address.
const Variable = "GOROVOD_DASHBOARD"

// maxConns is how many connections may be open at a time; maxStreams is how many of these may read events.
const (
	maxConns   = 64
	maxStreams = 32
)

// responseTime is how long the end of a job waits for responses that handlers have finished: for their last bytes.
const responseTime = 200 * time.Millisecond

// Server shows a Job over HTTP.
type Server struct {
	http    *http.Server
	view    *view
	address string
	over    chan struct{}
	stop    sync.Once
	running sync.WaitGroup
}

// Open listens as o says, and serves from then on until Close.
func Open(o door.Options, job *overview.Job) (*Server, error) {
	l, loopback, err := o.Listen(maxConns)
	if err != nil {
		return nil, err
	}
	return serve(l, o.URL(l, "/"), &view{job: job, token: o.Token}, loopback, o.Certificate != ""), nil
}

// OpenLocal serves the same page to this user's processes on this host: see door.ListenLocal.
func OpenLocal(job *overview.Job) (*Server, error) {
	l, err := door.ListenLocal(maxConns)
	if err != nil {
		return nil, err
	}
	return serve(l, "", &view{job: job, private: true}, true, false), nil
}

func serve(l net.Listener, address string, v *view, loopback, secure bool) *Server {
	s := &Server{view: v, address: address, over: make(chan struct{})}
	v.over, v.farewell = s.over, farewellTime
	s.http = door.NewServer(v.handler(loopback, secure))
	s.running.Go(func() { s.http.Serve(l) })
	return s
}

// URL is the page's address; empty after OpenLocal.
func (s *Server) URL() string { return s.address }

// Close tells the readers that the job has ended, ends all connections, and waits for the server's goroutines.
func (s *Server) Close() {
	s.stop.Do(func() {
		close(s.over)
		s.view.finish()
		ctx, cancel := context.WithTimeout(context.Background(), responseTime)
		defer cancel()
		s.http.Shutdown(ctx)
	})
	s.http.Close()
	s.running.Wait()
}

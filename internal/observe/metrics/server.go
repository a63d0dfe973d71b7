package metrics

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gorovod/gorovod/internal/observe/door"
)

const (
	// Variable has the default of the page's address.
	Variable = "GOROVOD_METRICS"
	// maxConns is how many connections may be open at a time. Prometheus uses one.
	maxConns    = 32
	maxTogether = 4 // answers with metrics at a time
)

// askEvery is the time between two rounds of figures.
const askEvery = 2 * time.Second

// Server shows a Job's figures over HTTP: see Handler.
type Server struct {
	job      *Job
	listener net.Listener
	http     *http.Server
	address  string
	over     chan struct{}
	stop     sync.Once
	running  sync.WaitGroup

	mu  sync.Mutex
	ask func() // asks the present world's ranks, by its rendezvous
}

// Open listens as o says, and serves from then on until Close.
func Open(o door.Options) (*Server, error) {
	l, loopback, err := o.Listen(maxConns)
	if err != nil {
		return nil, err
	}
	s := &Server{job: NewJob(), listener: l, over: make(chan struct{}),
		address: o.URL(l, "/metrics")}
	s.http = door.NewServer(Handler(s.job, o.Token, loopback))
	s.running.Go(func() { s.http.Serve(l) })
	s.running.Go(s.rounds)
	return s, nil
}

// URL is the address of the metrics.
func (s *Server) URL() string { return s.address }

// Job is the job that the server shows.
func (s *Server) Job() *Job { return s.job }

// Form begins a world, see Job.Form. ask asks its ranks for their figures, and must not block.
func (s *Server) Form(size int, from uint64, joined func() int, ask func()) {
	s.job.Form(size, from, joined)
	s.mu.Lock()
	s.ask = ask
	s.mu.Unlock()
}

// rounds is the goroutine that asks the ranks.
func (s *Server) rounds() {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.over:
			return
		}
		s.mu.Lock()
		ask := s.ask
		s.mu.Unlock()
		if ask != nil {
			ask()
		}
	}
}

// Close ends all connections and waits for the server's goroutines.
func (s *Server) Close() {
	s.stop.Do(func() { close(s.over) })
	s.http.Close()
	s.running.Wait()
}

// Handler answers three paths and nothing else:
//
//	/metrics  the figures, as Prometheus' text or as OpenMetrics
//	/healthz  200 while the launcher runs
//	/readyz   200 while all ranks have joined, else 503
//
// With a token, /metrics needs it as "Authorization: Bearer TOKEN". On loopback the request's Host must name loopback,
// so that a web page cannot read the figures through a name of its own that leads here.
func Handler(job *Job, token string, loopback bool) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(job)
	figures := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true,
		MaxRequestsInFlight: maxTogether, ErrorHandling: promhttp.HTTPErrorOnError})
	proven := func(r *http.Request) bool { return door.Authorized(r, token) }
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		joined, size := job.Ready()
		if size == 0 || joined < size {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, "%d of %d ranks have joined\n", joined, size)
	})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		if !proven(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a token is needed", http.StatusUnauthorized)
			return
		}
		figures.ServeHTTP(w, r)
	})
	return door.Guard(loopback, "default-src 'none'", proven, mux)
}

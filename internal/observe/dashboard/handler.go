package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/overview"
)

// eventTime is how long a reader may take to read one event.
const eventTime = 10 * time.Second

// farewellTime is how long the end of a job waits until readers have got its event.
const farewellTime = 2 * time.Second

// view is the page of one job.
type view struct {
	job      *overview.Job
	token    string
	sessions *sessions
	streams  chan struct{} // a place for each reader of events
	over     <-chan struct{}
	private  bool // only this user and root can connect
	farewell time.Duration
}

// handler answers these paths and no others. With a token, those with something of the job need a session, or the token
// as "Authorization: Bearer TOKEN".
//
//	/          the page
//	/login     the form for the token; a POST of it begins a session, and the answer is its key
//	/events    server-sent events: first "past", then a "now" each second, and "end" when the job has ended
//	/snapshot  the newest "now" alone, as JSON
//	/lines     the last lines of rank=N; only with a token or to this user, since output can hold secrets
//	/healthz   200 while the launcher runs
//	/identity  an overview.Identity; only to this user
func (v *view) handler(loopback, secure bool) http.Handler {
	v.sessions, v.streams = newSessions(secure), make(chan struct{}, maxStreams)
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("POST /login", v.login)
	mux.HandleFunc("GET /login", html(loginPage))
	mux.HandleFunc("/{$}", html(page))
	mux.HandleFunc("/events", v.only(v.events))
	mux.HandleFunc("/snapshot", v.only(v.snapshot))
	mux.HandleFunc("/lines", v.only(v.lines))
	if v.private {
		mux.HandleFunc("/identity", v.identity)
	}
	return door.Guard(loopback, policy, v.proven, mux, "/login")
}

// proven reports whether a reader has the token or a session, where one is needed.
func (v *view) proven(r *http.Request) bool {
	return v.token == "" || v.sessions.has(r) || door.Authorized(r, v.token)
}

// only lets proven readers pass.
func (v *view) only(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !v.proven(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a token is needed", http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}

// login begins a session, if the form has the token.
func (v *view) login(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form is too large", http.StatusBadRequest)
		return
	}
	if v.token == "" || !door.Same(r.PostForm.Get("token"), v.token) {
		http.Error(w, "This is not the token.", http.StatusForbidden)
		return
	}
	io.WriteString(w, v.sessions.begin(w))
}

func (v *view) snapshot(w http.ResponseWriter, r *http.Request) {
	defer v.job.Follow()()
	text, next := v.job.Last(v.mayReadOutput())
	if text == nil {
		select {
		case <-next:
		case <-r.Context().Done():
			return
		case <-time.After(3 * overview.Every):
		case <-v.over:
		}
		text, _ = v.job.Last(v.mayReadOutput())
	}
	if text == nil {
		http.Error(w, "nothing is known yet", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(text)
}

// mayReadOutput reports whether readers may see a rank's output and stack, which can hold secrets: those who have given
// the token, and this user.
func (v *view) mayReadOutput() bool { return v.token != "" || v.private }

func (v *view) identity(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v.job.Identity())
}

func (v *view) lines(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(r.URL.Query().Get("rank"))
	switch {
	case !v.mayReadOutput():
		http.Error(w, "output can hold secrets: it is shown only where a token is needed", http.StatusForbidden)
		return
	case err != nil || number < 0:
		http.Error(w, "rank=N is needed", http.StatusBadRequest)
		return
	}
	stdout, stderr, ok := v.job.Lines(number)
	if !ok {
		http.Error(w, "there is no such rank", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]string{"stdout": stdout, "stderr": stderr})
}

// events sends the past, and then each Snapshot. A reader that does not read loses its connection; a slow reader misses
// Snapshots.
func (v *view) events(w http.ResponseWriter, r *http.Request) {
	select {
	case v.streams <- struct{}{}:
		defer func() { <-v.streams }()
	default:
		http.Error(w, "too many readers", http.StatusServiceUnavailable)
		return
	}
	defer v.job.Follow()()
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	c := http.NewResponseController(w)
	c.SetReadDeadline(time.Time{}) // the other end sends nothing more, so reads have no deadline
	send := func(name string, data []byte) bool {
		c.SetWriteDeadline(time.Now().Add(eventTime))
		_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, bytes.ReplaceAll(data, []byte("\n"), nil))
		return err == nil && c.Flush() == nil
	}
	if !send("past", fmt.Appendf(nil, `{"columns":%s,"lines":%t}`, v.job.Past(), v.mayReadOutput())) {
		return
	}
	for {
		text, next := v.job.Last(v.mayReadOutput())
		if text != nil && !send("now", text) {
			return
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		case <-v.over:
			if ending, err := json.Marshal(v.job.Ended()); err == nil {
				send("end", ending)
			}
			return
		}
	}
}

// finish waits until readers have got the last event, at most farewell.
func (v *view) finish() {
	limit := time.After(v.farewell)
	for range maxStreams {
		select {
		case v.streams <- struct{}{}:
		case <-limit:
			return
		}
	}
}

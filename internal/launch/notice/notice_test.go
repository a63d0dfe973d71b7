package notice

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Clouds answer that nothing is there, that it is not yet time, with a notice, or that they are out of order.
func TestNoticeOfURL(t *testing.T) {
	for _, c := range []struct {
		code         int
		body         string
		there, fails bool
	}{
		{code: http.StatusNotFound, body: "no such page"}, {code: http.StatusOK, body: "FALSE\n"},
		{code: http.StatusOK, body: "TRUE", there: true},
		{code: http.StatusOK, body: "NONE"}, // of Google's maintenance-event
		{code: http.StatusOK, body: "MIGRATE_ON_HOST_MAINTENANCE"},
		{code: http.StatusOK, body: "TERMINATE_ON_HOST_MAINTENANCE", there: true},
		{code: http.StatusOK, body: `{"action": "terminate", "time": "2027-01-01T00:00:00Z"}`, there: true},
		{code: http.StatusServiceUnavailable, body: "TRUE", fails: true},
		{code: http.StatusForbidden, body: "", fails: true},
		{code: http.StatusUnauthorized, body: "", fails: true}, // and has no token
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && r.Header.Get("Metadata-Flavor") != "Google" {
				t.Error("one cloud answers only to those who say its name")
			}
			w.WriteHeader(c.code)
			w.Write([]byte(c.body))
		}))
		b := &board{url: s.URL}
		text, there, err := b.look()
		if there != c.there || there && text != strconv.Quote(strings.TrimSpace(c.body)) || c.fails != (err != nil) {
			t.Errorf("%d %q: %v %q %v", c.code, c.body, there, text, err)
		}
		s.Close()
		if _, there, err := b.look(); there || err == nil {
			t.Errorf("nobody is there, and gives notice: %v %v", there, err)
		}
	}
}

// A page whose answers are known gives notice by one of them only. An empty answer is never a notice.
func TestNoticeOfKnownPages(t *testing.T) {
	const preempted = "/computeMetadata/v1/instance/preempted"
	const maintenance = "/computeMetadata/v1/instance/maintenance-event?timeout_sec=2"
	const action, at = "/latest/meta-data/spot/instance-action", "/latest/meta-data/spot/termination-time"
	for _, c := range []struct {
		page, body   string
		there, fails bool
	}{
		{page: preempted, body: "TRUE\n", there: true}, {page: preempted, body: " FALSE "},
		{page: preempted, body: "", fails: true}, {page: preempted, body: "<html>Log in</html>", fails: true},
		{page: preempted, body: "TERMINATE_ON_HOST_MAINTENANCE", fails: true},
		{page: maintenance, body: "TERMINATE_ON_HOST_MAINTENANCE\r\n", there: true},
		{page: maintenance, body: "NONE"}, {page: maintenance, body: "MIGRATE_ON_HOST_MAINTENANCE"},
		{page: maintenance, body: "", fails: true}, {page: maintenance, body: "TRUE", fails: true},
		{page: action, body: `{"action": "stop", "time": "2027-01-01T00:00:00Z"}`, there: true},
		{page: action, body: ""}, {page: action, body: `{"time": "x"}`, fails: true},
		{page: action, body: "<html>", fails: true},
		{page: at, body: "2027-01-01T00:00:00Z", there: true}, {page: at, body: ""}, {page: at, body: "none yet"},
		{page: "/mine", body: ""}, {page: "/mine", body: "leave", there: true},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(c.body))
		}))
		text, there, err := (&board{url: s.URL + c.page}).look()
		if there != c.there || c.fails != (err != nil) {
			t.Errorf("%s %q: notice %v %q, error %v", c.page, c.body, there, text, err)
		}
		if c.fails && !strings.Contains(fmt.Sprint(err), c.page+" answers "+strconv.Quote(c.body)+", not ") {
			t.Errorf("%s %q: error %v", c.page, c.body, err)
		}
		s.Close()
	}
}

// azure is the metadata service of a machine of Azure. It answers only those who say that they ask for metadata, and
// has a list of events at all times.
type azure struct{ name, events string }

func (a *azure) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case r.Header.Get("Metadata") != "true" || q.Get("api-version") == "":
		w.WriteHeader(http.StatusBadRequest)
		w.Write([]byte(`{"error": "Bad request. api-version was not specified in the request"}`))
	case r.URL.Path == "/metadata/scheduledevents":
		w.Write([]byte(a.events))
	case r.URL.Path == "/metadata/instance/compute/name" && q.Get("format") == "text" && a.name != "":
		w.Write([]byte(a.name))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// Azure's list has events of other machines, too, and events that a machine survives.
func TestNoticeOfAzure(t *testing.T) {
	event := func(kind, when string, machines ...string) string {
		return fmt.Sprintf(`{"EventId": "602d9444", "EventType": %q, "ResourceType": "VirtualMachine", "Resources": `+
			`["%s"], "EventStatus": "Scheduled", "NotBefore": %q, "EventSource": "Platform", "DurationInSeconds": -1}`,
			kind, strings.Join(machines, `", "`), when)
	}
	const when = "Mon, 19 Sep 2027 18:29:47 GMT"
	list := func(events ...string) string {
		return `{"DocumentIncarnation": 2, "Events": [` + strings.Join(events, ", ") + "]}"
	}
	for _, c := range []struct {
		name         string
		machine      string
		events       string
		query        string
		notice, fail string
	}{
		{name: "nothing", events: list()},
		{name: "spot", events: list(event("Preempt", when, "gpu_7")),
			notice: `"Preempt of gpu_7, not before ` + when + `"`},
		{name: "has begun", events: list(event("Terminate", "", "GPU_7")), notice: `"Terminate of gpu_7"`},
		{name: "reboot", events: list(event("Reboot", "", "gpu_7")), notice: `"Reboot of gpu_7"`},
		{name: "redeploy", events: list(event("Redeploy", "", "gpu_7")), notice: `"Redeploy of gpu_7"`},
		{name: "a pause", events: list(event("Freeze", when, "gpu_7"))},
		{name: "another machine", events: list(event("Preempt", when, "gpu_70", "gpu_8"))},
		{name: "several", events: list(event("Freeze", "", "gpu_7"), event("Preempt", "", "gpu_8"),
			event("Terminate", when, "gpu_8", "gpu_7")), notice: `"Terminate of gpu_7, not before ` + when + `"`},
		{name: "many", events: list(strings.Repeat(event("Preempt", when, "gpu_8")+", ", 500) +
			event("Preempt", "", "gpu_7")), notice: `"Preempt of gpu_7"`},
		{name: "no list", events: "<html>Log in</html>", fail: `answers no list of events, but "<html>Log in</html>"`},
		{name: "no events", events: `{"DocumentIncarnation": 2}`, fail: "answers no list of events"},
		{name: "no version", events: list(), query: "?",
			fail: "answers 400 Bad Request: .*api-version was not specified"},
		{name: "no name", machine: "-", events: list(event("Preempt", when, "gpu_7")),
			fail: "the name of this one is not to be had: .*/metadata/instance/compute/name.* answers 404 Not Found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &azure{name: "gpu_7", events: c.events}
			if c.machine != "" {
				a.name = ""
			}
			s := httptest.NewServer(a)
			defer s.Close()
			b := &board{url: s.URL + "/metadata/scheduledevents" + cmp.Or(c.query, "?api-version=2020-07-01")}
			text, there, err := b.look()
			if c.fail != "" {
				if err == nil || there || !regexp.MustCompile(c.fail).MatchString(err.Error()) {
					t.Errorf("%v %v, want %q", there, err, c.fail)
				}
				return
			}
			if err != nil || there != (c.notice != "") || text != c.notice {
				t.Errorf("notice %v %q, error %v; want %q", there, text, err, c.notice)
			}
		})
	}
}

// amazon is the metadata service of a machine that allows version 2 only. It gives out tokens, which hold until it
// forgets them, and a notice once there is one.
type amazon struct {
	t      *testing.T
	token  atomic.Pointer[string]
	given  atomic.Int32
	notice atomic.Bool
}

func (a *amazon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/latest/api/token" && r.Method == http.MethodPut:
		if ttl := r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds"); ttl != "21600" {
			a.t.Errorf("a token is asked for %q seconds", ttl)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		token := "token " + string('0'+a.given.Add(1)) + "=="
		a.token.Store(&token)
		w.Write([]byte(token))
	case a.token.Load() == nil || r.Header.Get("X-aws-ec2-metadata-token") != *a.token.Load():
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path != "/latest/meta-data/spot/instance-action" || !a.notice.Load():
		w.WriteHeader(http.StatusNotFound)
	default:
		w.Write([]byte(`{"action": "terminate"}`))
	}
}

// Amazon's service shows notices only for a token of its own, which expires.
func TestNoticeNeedsToken(t *testing.T) {
	a := &amazon{t: t}
	s := httptest.NewServer(a)
	defer s.Close()
	b := &board{url: s.URL + "/latest/meta-data/spot/instance-action"}
	look := func(what string, want bool, tokens int32) {
		t.Helper()
		_, there, err := b.look()
		if there != want || err != nil || a.given.Load() != tokens {
			t.Errorf("%s: notice %v, error %v, %d tokens", what, there, err, a.given.Load())
		}
	}
	look("nothing yet", false, 1)
	look("with the same token", false, 1)
	a.token.Store(nil)
	look("the token is too old", false, 2)
	a.notice.Store(true)
	look("a notice", true, 2)
}

// A user hears that a notice cannot come: once, and not at once.
func TestNoticeCannotBeSeen(t *testing.T) {
	said := make(chan string, 10)
	synctest.Test(t, func(t *testing.T) {
		transport := noticeClient.Transport
		defer func() { noticeClient.Transport = transport }()
		looks := 0
		noticeClient.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				looks++
			}
			if looks == 30 {
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("go"))}, nil
			}
			return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody}, nil
		})
		began := time.Now()
		Await("http://cloud/notice", func(text string) {
			if at := time.Since(began); at < patience || at > 2*patience {
				t.Errorf("it is said after %v", at)
			}
			said <- text
		})
	})
	const want = "--leave-on: no notice can be seen: http://cloud/notice answers 401 Unauthorized, and " +
		"http://cloud/latest/api/token gives no token: 401 Unauthorized. It is tried again every second"
	if len(said) != 1 {
		t.Fatalf("it is said %d times", len(said))
	}
	if text := <-said; text != want {
		t.Errorf("said %q, want %q", text, want)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A notice may come long after the first look.
func TestAwaitNotice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notice")
	said := make(chan string, 1)
	go func() { said <- Await(file, func(string) {}) }()
	select {
	case text := <-said:
		t.Fatal("there is no notice, and yet:", text)
	case <-time.After(50 * time.Millisecond):
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-said:
		if want := file + " is there"; text != want {
			t.Errorf("%q, want %q", text, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it is not seen")
	}
}

// A user hears of a file that cannot come, as of a URL that cannot be asked.
func TestNoticeFileCannotCome(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(folder string) error
		at    time.Duration
		says  string
	}{
		{"folder is a file", func(folder string) error { return os.WriteFile(folder, nil, 0o600) }, 11 * time.Second,
			"--leave-on: no notice can be seen: stat .*: not a directory. It is tried again every second"},
		{"no folder", func(string) error { return nil }, 0, "--leave-on .*/f/notice: there is no folder .*/f; "},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "f")
			if err := c.spoil(folder); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				began, said := time.Now(), 0
				time.AfterFunc(time.Minute, func() {
					os.Remove(folder)
					os.MkdirAll(filepath.Join(folder, "notice"), 0o700)
				})
				text := Await(filepath.Join(folder, "notice"), func(text string) {
					said++
					if at := time.Since(began); at != c.at || !regexp.MustCompile(c.says).MatchString(text) {
						t.Errorf("after %v it says %q, want %q after %v", at, text, c.says, c.at)
					}
				})
				if said != 1 || !strings.HasSuffix(text, "/f/notice is there") {
					t.Errorf("it says %q, and has warned %d times", text, said)
				}
			})
		})
	}
}

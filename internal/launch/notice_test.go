package launch

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
		b := &noticeBoard{url: s.URL}
		text, there, err := b.look()
		if there != c.there || there && text != strings.TrimSpace(c.body) || c.fails != (err != nil) {
			t.Errorf("%d %q: %v %q %v", c.code, c.body, there, text, err)
		}
		s.Close()
		if _, there, err := b.look(); there || err == nil {
			t.Errorf("nobody is there, and gives notice: %v %v", there, err)
		}
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
	b := &noticeBoard{url: s.URL + "/latest/meta-data/spot/instance-action"}
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
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			}
			return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody}, nil
		})
		began := time.Now()
		awaitNotice("http://cloud/notice", func(text string) {
			if at := time.Since(began); at < noticePatience || at > 2*noticePatience {
				t.Errorf("it is said after %v", at)
			}
			said <- text
		})
	})
	const want = "--leave-on: no notice can be seen: http://cloud/notice answers 401 Unauthorized, and " +
		"http://cloud/latest/api/token gives no token: 401 Unauthorized. It is asked again every second"
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
	go func() { said <- awaitNotice(file, func(string) {}) }()
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

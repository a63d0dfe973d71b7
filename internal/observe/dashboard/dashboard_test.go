package dashboard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"github.com/gorovod/gorovod/internal/observe/overview"
	"github.com/gorovod/gorovod/test/leak"
)

const token = "correct-horse-battery"

// injection is what a tensor's name, a host and a line of output may hold.
// stackInjection stands for a function's name.
const stackInjection = "<img src=x onerror=alert(2)>"

const injection = "</script><img src=x onerror=alert(1)>\r\n\r\nevent: now\r\n\x1b[2J\u202egnp"

// open serves a job of two ranks, one of which waits.
func open(t *testing.T, o door.Options) (*Server, *overview.Job) {
	t.Helper()
	before := leak.Now()
	job := overview.New()
	s, err := Open(o, job)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	done := make(chan struct{})
	go func() {
		job.Run(over)
		close(done)
	}()
	t.Cleanup(func() {
		close(over)
		<-done
		http.DefaultClient.CloseIdleConnections()
		s.Close()
		before.Check(t)
	})
	job.SetLines(func(number int) (string, string, bool) { return injection, "", number < 2 })
	job.Form(2, 0, func() int { return 2 }, func() {
		f := &feed.Figures{Pending: 1}
		f.SetWaits([]feed.Wait{{Name: injection, Op: "ALLREDUCE", Age: 5e9}})
		job.Take(0, 1, injection, f.Append(nil))
		f = &feed.Figures{Stack: []feed.Frame{{File: "x/y.py", Func: stackInjection, Line: 7}}}
		job.Take(1, 1, "host", f.Append(nil))
	})
	return s, job
}

// ask is the answer to a request; the caller closes its body.
func ask(t *testing.T, method, where string, body io.Reader, change func(*http.Request)) *http.Response {
	t.Helper()
	r, err := http.NewRequest(method, where, body)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// get is the status and the text of an answer.
func get(t *testing.T, s *Server, path string, change func(*http.Request)) (int, string) {
	t.Helper()
	a := ask(t, http.MethodGet, strings.TrimSuffix(s.URL(), "/")+path, nil, change)
	defer a.Body.Close()
	text, _ := io.ReadAll(a.Body)
	return a.StatusCode, string(text)
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestThePageIsAlone(t *testing.T) {
	s, _ := open(t, door.Options{Address: "0"})
	a := ask(t, http.MethodGet, s.URL(), nil, nil)
	defer a.Body.Close()
	text, _ := io.ReadAll(a.Body)
	page := string(text)
	policy := a.Header.Get("Content-Security-Policy")
	if a.StatusCode != 200 || strings.Contains(page, "{{s") || !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "unsafe") {
		t.Errorf("%s, %s", a.Status, policy)
	}
	for _, outside := range []string{"http://", "https://", "//cdn", "@import", "url(", "innerHTML",
		"insertAdjacentHTML", "document.write", "eval("} {
		if strings.Contains(page, outside) {
			t.Errorf("the page has %q", outside)
		}
	}
	for _, part := range []string{scriptText, styleText} {
		if strings.Contains(part, "</") {
			t.Error("a script or style could end early")
		}
	}
	if len(page) > 64<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for path, want := range map[string]int{"/healthz": 200, "/page.js": 404, "/metrics": 404, "/events/x": 404,
		"/debug/pprof/": 404, "/lines?rank=0": 403} {
		if code, text := get(t, s, path, nil); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	for range 2 { // a second look, when the job has been asked where rank 1 is
		_, text := get(t, s, "/snapshot", nil)
		if strings.Contains(text, "alert(2)") || strings.Contains(text, "where") {
			t.Errorf("everybody sees a stack: %s", text)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		for _, path := range []string{"", "events", "snapshot"} {
			a := ask(t, method, s.URL()+path, nil, nil)
			a.Body.Close()
			if a.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s /%s: %s", method, path, a.Status)
			}
		}
	}
}

// TestNothingFromTheJobIsMarkup checks that the ranks' texts stay inside JSON, on one line.
func TestNothingFromTheJobIsMarkup(t *testing.T) {
	s, _ := open(t, door.Options{Address: "0"})
	a := ask(t, http.MethodGet, s.URL()+"events", nil, nil)
	defer a.Body.Close()
	if kind := a.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("events are %s", kind)
	}
	lines, names := bufio.NewScanner(a.Body), []string{}
	lines.Buffer(nil, 1<<20)
	var shown overview.Snapshot
	for len(shown.Open) == 0 && lines.Scan() {
		kind, data, _ := strings.Cut(lines.Text(), ": ")
		switch kind {
		case "event":
			names = append(names, data)
		case "data":
			if strings.ContainsAny(data, "<>\x1b\r") {
				t.Errorf("%s", data)
			}
			if names[len(names)-1] == "now" {
				if err := json.Unmarshal([]byte(data), &shown); err != nil {
					t.Fatal(err)
				}
			}
		case "":
		default:
			t.Fatalf("line %q", lines.Text())
		}
	}
	if names[0] != "past" || len(shown.Open) != 1 || !strings.Contains(shown.Open[0].Name, "<img") ||
		!strings.Contains(shown.Sentence, "onerror") {
		t.Errorf("%q, %+v", names, shown)
	}
}

func TestHostsOfOthersAreRefused(t *testing.T) {
	s, _ := open(t, door.Options{Address: "0"})
	for host, want := range map[string]int{"localhost": 200, "127.0.0.1:80": 200, "[::1]:80": 200, "evil.example": 421,
		"127.0.0.1.evil.example:80": 421} {
		for _, path := range []string{"/", "/snapshot", "/login"} {
			if code, _ := get(t, s, path, func(r *http.Request) { r.Host = host }); code != want {
				t.Errorf("Host %q, %s: %d, not %d", host, path, code, want)
			}
		}
	}
}

func TestTokens(t *testing.T) {
	s, _ := open(t, door.Options{Address: "0", Token: token})
	for _, path := range []string{"/events", "/snapshot", "/lines?rank=0", "/snapshot?token=" + token,
		"/snapshot?key=" + token} {
		for _, value := range []string{"", "Bearer wrong", token, "Bearer " + token + "x"} {
			code, text := get(t, s, path, header("Authorization", value))
			if code != 401 || strings.Contains(text, token) {
				t.Errorf("%s with %q: %d %s", path, value, code, text)
			}
		}
		if code, _ := get(t, s, path, header("Cookie", s.view.sessions.name+"="+token)); code != 401 {
			t.Errorf("%s: the token is taken for a session", path)
		}
	}
	for _, path := range []string{"/", "/snapshot", "/lines?rank=0"} {
		if code, text := get(t, s, path, header("Authorization", "Bearer "+token)); code != 200 {
			t.Errorf("%s with the token: %d %s", path, code, text)
		}
	}
	if code, text := get(t, s, "/login", nil); code != 200 || !strings.Contains(text, `action="/login"`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text := get(t, s, "/", nil); code != 200 || text != string(page) {
		t.Errorf("the page alone: %d %s", code, text)
	}
}

// form is the answer to a form with a token, and its text.
func form(t *testing.T, s *Server, value string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	a := ask(t, http.MethodPost, s.URL()+"login", strings.NewReader(url.Values{"token": {value}}.Encode()),
		func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if change != nil {
				change(r)
			}
		})
	defer a.Body.Close()
	text, _ := io.ReadAll(a.Body)
	return a, string(text)
}

func TestLogin(t *testing.T) {
	s, _ := open(t, door.Options{Address: "0", Token: token})
	for _, wrong := range []string{"", "wrong", token + "x", strings.Repeat("x", 1<<20)} {
		if a, _ := form(t, s, wrong, nil); a.StatusCode < 400 || len(a.Cookies()) > 0 {
			t.Errorf("%.30q: %s", wrong, a.Status)
		}
	}
	if a, _ := form(t, s, token, header("Sec-Fetch-Site", "cross-site")); a.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site: %s", a.Status)
	}
	a, key := form(t, s, token, nil)
	if a.StatusCode != http.StatusOK || len(a.Cookies()) != 1 || len(key) < 26 {
		t.Fatalf("%s, %v, %q", a.Status, a.Cookies(), key)
	}
	c := a.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value+key, token) ||
		strings.Contains(c.Value, key) || c.Secure {
		t.Errorf("%v", c)
	}
	cookie := header("Cookie", c.Name+"="+c.Value)
	_, second := form(t, s, token, nil)
	for path, change := range map[string]func(*http.Request){"/snapshot": cookie, "/snapshot?key=": cookie,
		"/snapshot?key=" + key: nil, "/snapshot?key=" + second: cookie, "/lines?rank=0": cookie, "/events": cookie} {
		if code, _ := get(t, s, path, change); code != 401 {
			t.Errorf("half a session sees %s: %d", path, code)
		}
	}
	with := func(r *http.Request) {
		cookie(r)
		q := r.URL.Query()
		q.Set(keyParameter, key)
		r.URL.RawQuery = q.Encode()
	}
	if code, _ := get(t, s, "/snapshot", with); code != 200 {
		t.Errorf("the session sees %d", code)
	}
	if _, text := get(t, s, "/snapshot", with); !strings.Contains(text, `"where":{"rank":1,"text":"its program `) {
		t.Errorf("the session sees no stack: %s", text)
	}
	var lines map[string]string
	if _, text := get(t, s, "/lines?rank=0", with); json.Unmarshal([]byte(text), &lines) != nil ||
		lines["stdout"] != injection {
		t.Errorf("%q", text)
	}
	for path, want := range map[string]int{"/lines": 400, "/lines?rank=-1": 400, "/lines?rank=x": 400,
		"/lines?rank=2": 404} {
		if code, _ := get(t, s, path, with); code != want {
			t.Errorf("%s: %d", path, code)
		}
	}
}

func TestSessionsAreBounded(t *testing.T) {
	s := newSessions(true)
	if s.name == newSessions(true).name {
		t.Error("two pages of a host have cookies of one name")
	}
	first := &cookies{header: http.Header{}}
	r := &http.Request{URL: &url.URL{RawQuery: keyParameter + "=" + s.begin(first)},
		Header: http.Header{"Cookie": {strings.Split(first.header.Get("Set-Cookie"), ";")[0]}}}
	if !s.has(r) || !strings.Contains(first.header.Get("Set-Cookie"), "; Secure") {
		t.Errorf("%v", first.header)
	}
	for range mostSessions {
		s.begin(&cookies{header: http.Header{}})
	}
	if s.has(r) || len(s.open) != mostSessions {
		t.Errorf("%d sessions", len(s.open))
	}
	r.URL.RawQuery = keyParameter + "=" + s.begin(first)
	r.Header.Set("Cookie", strings.Split(first.header.Values("Set-Cookie")[1], ";")[0])
	if !s.has(r) {
		t.Error("the newest session is unknown")
	}
	s.open[mostSessions-1].until = time.Now()
	if s.has(r) {
		t.Error("a session never ends")
	}
}

type cookies struct {
	http.ResponseWriter
	header http.Header
}

func (c *cookies) Header() http.Header { return c.header }

// TestReadersThatNeverRead takes all places with readers of events that never read. The job goes on, and once they are
// gone, so does the page.
func TestReadersThatNeverRead(t *testing.T) {
	s, job := open(t, door.Options{Address: "0"})
	address := strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http://"), "/")
	var kept []net.Conn
	for range maxConns {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, c)
		fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	for range 500 { // each is answered, or closed at once
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); os.IsTimeout(err) {
			t.Fatal("a connection beyond the bound waits")
		}
		c.Close()
	}
	for range 3 { // Snapshots are still made
		_, next := job.Last(false)
		select {
		case <-next:
		case <-time.After(10 * time.Second):
			t.Fatal("readers hold up the job's overview")
		}
	}
	began := time.Now()
	for range 1000 {
		job.Note("goes on")
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("readers hold up the job for %v", d)
	}
	for _, c := range kept {
		c.Close()
	}
	for try := 0; ; try++ {
		r, err := http.Get(s.URL())
		if err == nil {
			r.Body.Close()
			if r.StatusCode == 200 {
				break
			}
		}
		if try == 200 {
			t.Fatalf("the page does not recover: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestHiddenCharactersAreWrittenOut checks that the page shows each character as package printable does, in all texts
// that come from the job. It needs Node.
// At the end of a job readers get the last event, and the end of the response, not a connection that breaks off.
func TestResponsesEndWithTheJob(t *testing.T) {
	for range 30 {
		s, err := Open(door.Options{Address: "127.0.0.1:0"}, overview.New())
		if err != nil {
			t.Fatal(err)
		}
		const readers = 8
		var texts [readers]string
		var failures [readers]error
		var reading sync.WaitGroup
		for i := range readers {
			a := ask(t, http.MethodGet, s.URL()+"events", nil, nil)
			reading.Go(func() {
				defer a.Body.Close()
				text, err := io.ReadAll(a.Body)
				texts[i], failures[i] = string(text), err
			})
		}
		s.Close()
		reading.Wait()
		for i, err := range failures {
			if err != nil || !strings.Contains(texts[i], "event: end") {
				t.Fatalf("reader %d: %v after %q", i, err, texts[i])
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestHiddenCharactersAreWrittenOut(t *testing.T) {
	if n := strings.Count(scriptText, "JSON.parse("); n != 1 || strings.Contains(scriptText, ".json()") {
		t.Errorf("the script parses JSON at %d places: parse alone may", n)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no Node")
	}
	from := strings.Index(scriptText, "const brief")
	to := strings.Index(scriptText, "const put")
	if from < 0 || to < from {
		t.Fatal("the script has no brief, visible and parse")
	}
	var all []rune
	for r := range rune(0x3100) {
		all = append(all, 'x', r)
	}
	text, err := json.Marshal(map[string][]string{"names": {string(all), "a\u202egpj.exe", "💥"}})
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(node, "-e", scriptText[from:to]+
		`process.stdout.write(JSON.stringify(parse(require("fs").readFileSync(0, "utf8"))))`)
	c.Stdin = bytes.NewReader(text)
	out, err := c.Output()
	var got struct{ Names []string }
	if err != nil || json.Unmarshal(out, &got) != nil || len(got.Names) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, want := range []string{printable.Text(string(all)), `a\u202egpj.exe`, "💥"} {
		if got.Names[i] != want {
			t.Errorf("%q is not %q", got.Names[i], want)
		}
	}
}

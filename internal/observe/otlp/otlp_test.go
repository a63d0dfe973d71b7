package otlp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// collector decodes requests as strictly as the protocol's JSON allows: no unknown fields, ids of the right length,
// times as strings.
type collector struct {
	mu     sync.Mutex
	errs   []error
	spans  []span
	header http.Header
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = c.take(body)
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
		err = fmt.Errorf("%s %s, %s", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	if err != nil {
		c.errs = append(c.errs, err)
		w.WriteHeader(http.StatusBadRequest)
	}
	c.header = r.Header
}

func (c *collector) take(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	var r request
	if err := d.Decode(&r); err != nil {
		return err
	}
	for _, rs := range r.ResourceSpans {
		if a := rs.Resource.Attributes[0]; a.Key != "service.name" || a.Value.Text == nil {
			return fmt.Errorf("the first attribute is %v", a)
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				start, err := strconv.ParseUint(s.Start, 10, 64)
				end, err2 := strconv.ParseUint(s.End, 10, 64)
				if err != nil || err2 != nil || start > end || len(s.TraceID) != 32 || len(s.SpanID) != 16 ||
					len(s.ParentID) != 0 && len(s.ParentID) != 16 || s.Kind != 1 || s.Name == "" {
					return fmt.Errorf("a bad span: %+v", s)
				}
				c.spans = append(c.spans, s)
			}
		}
	}
	return nil
}

// options are the options for a server at url. It counts the warnings.
func options(url string) (Options, *atomic.Int32) {
	var warnings atomic.Int32
	return Options{URL: url + "/v1/traces", Service: "s", Timeout: time.Second, Headers: map[string]string{"Key": "k"},
		Warn: func(string) { warnings.Add(1) }}, &warnings
}

// If an elastic job loses a rank, its spans are a tree, and say what happened.
func TestSpansOfAJob(t *testing.T) {
	c := &collector{}
	server := httptest.NewServer(c)
	defer server.Close()
	o, warnings := options(server.URL)
	j := Start(o, "python")
	var here atomic.Int32
	j.Form(3, 0, func() int { return int(here.Load()) }, nil)
	here.Store(3)
	time.Sleep(3 * joinedEvery)
	j.Broke(0)
	broke := nanos(time.Now())
	j.Fail("rank 1 was killed\xff")
	time.Sleep(joinedEvery)
	j.Broke(0) // another rank, by the first one's failure
	j.Form(2, 0, func() int { return 2 }, nil)
	j.End(0)
	if len(c.errs) > 0 || warnings.Load() > 0 || c.header.Get("Key") != "k" {
		t.Fatalf("%v, %d warnings, %v", c.errs, warnings.Load(), c.header)
	}
	var names []string
	byID := map[string]span{}
	for _, s := range c.spans {
		byID[s.SpanID] = s
	}
	for _, s := range c.spans {
		if s.TraceID != c.spans[0].TraceID {
			t.Errorf("%+v is of another trace", s)
		}
		path := s.Name
		for p := s.ParentID; p != ""; p = byID[p].ParentID {
			path = byID[p].Name + "/" + path
		}
		for _, a := range s.Attributes {
			if a.Key == "horovod.world.number" {
				path += *a.Value.Int
			}
		}
		names = append(names, path)
		if path == "job/world/form1" && s.Start != nanos(j.began) {
			t.Errorf("it forms since %v, not the job's start %v", s.Start, nanos(j.began))
		}
		if strings.HasSuffix(path, "2") && s.Start > broke || path == "job/world1" && s.End > broke {
			t.Errorf("%s from %v to %v, and a rank failed before %v", path, s.Start, s.End, broke)
		}
		if s.Name == "failure" && (s.Status.Code != 2 || s.Status.Message != "rank 1 was killed\ufffd" ||
			s.Events[0].Name != "exception") {
			t.Errorf("%+v", s)
		}
	}
	got := strings.Join(names, " ")
	for _, want := range []string{"job", "job/world1", "job/world/form1", "job/world/failure", "job/world2",
		"job/world/form2"} {
		if strings.Count(" "+got+" ", " "+want+" ") != 1 {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if len(names) != 6 {
		t.Errorf("spans %v", names)
	}
}

// A process of an earlier world that ends late breaks no later world.
func TestALateDeath(t *testing.T) {
	server := httptest.NewServer(&collector{})
	defer server.Close()
	o, _ := options(server.URL)
	j := Start(o, "python")
	defer j.End(0)
	for epoch := range uint64(2) {
		j.Form(2, epoch<<20, func() int { return 2 }, nil)
	}
	j.Broke(0)
	if !j.broke.IsZero() {
		t.Error("the second world is broken by a death in the first")
	}
	j.Broke(1 << 20)
	if j.broke.IsZero() {
		t.Error("a death in the second world does not count")
	}
}

// A world that some ranks never join ends as failed.
func TestAWorldThatDoesNotForm(t *testing.T) {
	c := &collector{}
	server := httptest.NewServer(c)
	defer server.Close()
	o, _ := options(server.URL)
	j := Start(o, "python")
	j.Form(3, 0, func() int { return 1 }, nil)
	j.End(7)
	failed := 0
	for _, s := range c.spans {
		if s.Status.Code == failedStatus {
			failed++
		}
	}
	if len(c.spans) != 3 || failed != 2 {
		t.Errorf("%+v", c.spans)
	}
}

// Collectors that are absent, never answer, answer nonsense or redirect cause one warning, and no wait except the last
// one.
func TestBadCollectors(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := garbage.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("\x00\xff what?\r\n\r\n"))
			c.Close()
		}
	}()
	defer garbage.Close()
	elsewhere := &collector{}
	other := httptest.NewServer(elsewhere)
	defer other.Close()
	moved := httptest.NewServer(http.RedirectHandler(other.URL+"/v1/traces", http.StatusTemporaryRedirect))
	defer moved.Close()
	for name, url := range map[string]string{"absent": "http://127.0.0.1:1", "mute": "http://" + mute.Addr().String(),
		"garbage": "http://" + garbage.Addr().String(), "moved": moved.URL} {
		t.Run(name, func(t *testing.T) {
			o, warnings := options(url)
			o.Timeout = time.Minute // the job's end must not wait this long
			warn := o.Warn
			o.Warn = func(text string) {
				if warn(text); name == "mute" != strings.Contains(text, "has not answered for 2") ||
					strings.Contains(text, "context") {
					t.Errorf("it says: %s", text)
				}
			}
			j := Start(o, "python")
			began := time.Now()
			for range 3 * mostQueued {
				j.Fail("x")
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("3072 failures took %v", took)
			}
			began = time.Now()
			j.End(0)
			if took := time.Since(began); took > lastWait+3*time.Second {
				t.Errorf("the end took %v", took)
			}
			if n := warnings.Load(); n != 1 {
				t.Errorf("%d warnings", n)
			}
		})
	}
	if elsewhere.header != nil {
		t.Error("the headers went to another server")
	}
}

// TestSecretsOfAnAddress: logs of a collector's address have neither its password nor its query.
func TestSecretsOfAnAddress(t *testing.T) {
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	for _, host := range []string{strings.TrimPrefix(refusing.URL, "http://"), "127.0.0.1:1"} {
		o := Options{URL: "http://me:hunter2@" + host + "/v1/traces?key=hunter3"}
		e := &exporter{options: o}
		err := e.send(t.Context(), nil)
		if err == nil || strings.Contains(err.Error(), "hunter") || !strings.Contains(err.Error(), host) {
			t.Error(err)
		}
	}
}

// TestCollectorThatRefusesOnce: the spans of the job's end are sent although the collector has just refused others.
func TestCollectorThatRefusesOnce(t *testing.T) {
	c, refused := &collector{}, make(chan struct{})
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := false
		once.Do(func() { first = true })
		if !first {
			c.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		close(refused)
	}))
	defer server.Close()
	o, _ := options(server.URL)
	said := make(chan string, 1)
	o.Warn = func(text string) { said <- text }
	j := Start(o, "python")
	j.Fail("x")
	<-refused
	if text := <-said; !strings.HasSuffix(text, "; the job goes on; they are sent again later") {
		t.Errorf("%q", text)
	}
	time.Sleep(100 * time.Millisecond) // the exporter begins its pause
	j.End(0)
	if n := len(c.spans); n == 0 || c.spans[n-1].Name != "job" {
		t.Errorf("the collector got %d spans, and no job", n)
	}
}

// TestCollectorWithoutTraces: what a collector will never take is said to be lost.
func TestCollectorWithoutTraces(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	o, _ := options(server.URL)
	said := make(chan string, 1)
	o.Warn = func(text string) { said <- text }
	j := Start(o, "python")
	j.Fail("x")
	if text := <-said; !strings.HasSuffix(text, "; the job goes on; these are lost") {
		t.Errorf("%q", text)
	}
	j.End(0)
}

func TestVariables(t *testing.T) {
	for _, c := range []struct {
		env  string
		want string
	}{
		{"", "off"},
		{"GOROVOD_OTLP=0 OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "off"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "off"},
		{"GOROVOD_OTLP=1", "http://localhost:4318/v1/traces gorovod 5s map[]"},
		{"GOROVOD_OTLP=1 OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1/ OTEL_SERVICE_NAME=x OTEL_EXPORTER_OTLP_TIMEOUT=20",
			"http://c:1/v1/traces x 20ms map[]"},
		{"GOROVOD_OTLP=1 OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://c/t OTEL_EXPORTER_OTLP_ENDPOINT=http://d " +
			"OTEL_EXPORTER_OTLP_HEADERS=a=b%2Cc,d=e", "https://c/t gorovod 5s map[a:b,c d:e]"},
		{"GOROVOD_OTLP=yes", "GOROVOD_OTLP=yes: 0 or 1"},
		{"GOROVOD_OTLP=1 OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "only OTLP over HTTP"},
		{"GOROVOD_OTLP=1 OTEL_EXPORTER_OTLP_ENDPOINT=c:4318", "a URL is needed"},
		{"GOROVOD_OTLP=1 OTEL_EXPORTER_OTLP_HEADERS=secret", "OTEL_EXPORTER_OTLP_HEADERS: NAME=VALUE"},
		{"GOROVOD_OTLP=1 OTEL_EXPORTER_OTLP_TIMEOUT=0", "a number of milliseconds"},
	} {
		env := map[string]string{}
		for _, item := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(item, "=")
			env[name] = value
		}
		o, on, err := From(func(name string) string { return env[name] })
		got := "off"
		switch {
		case err != nil:
			got = err.Error()
		case on:
			got = fmt.Sprint(o.URL, " ", o.Service, " ", o.Timeout, " ", o.Headers)
		}
		right := strings.HasPrefix(got, c.want) || err != nil && strings.Contains(got, c.want)
		if !right || strings.Contains(got, "secret") {
			t.Errorf("%s: %s, want %s", c.env, got, c.want)
		}
	}
}

// A nil Job does nothing.
func TestNone(t *testing.T) {
	var j *Job
	j.Form(2, 0, nil, nil)
	j.Take(0, 0, "", nil)
	j.Fail("x")
	j.End(1)
}

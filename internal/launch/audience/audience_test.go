package audience

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/observe/otlp"
	"github.com/gorovod/gorovod/internal/observe/overview"
)

// TestReadersShareAnswers checks that readers who ask seldom do not take answers away from the one who asks often.
func TestReadersShareAnswers(t *testing.T) {
	asked := 0
	q := &Inquiry{Ask: func() { asked++ }}
	often, seldom := q.unless(0), q.unless(time.Hour)
	for _, c := range []struct {
		ask  func()
		want int
	}{{seldom, 1}, {seldom, 1}, {often, 2}, {seldom, 2}, {often, 3}} {
		if c.ask(); asked != c.want {
			t.Errorf("asked %d times, not %d", asked, c.want)
		}
	}
	q.last = time.Now().Add(-time.Hour)
	if seldom(); asked != 4 {
		t.Error("nobody asks after an hour")
	}
}

// TestReadersAreToldOfADeath checks that the death of a rank reaches the page's sentence, and a good end does not.
func TestReadersAreToldOfADeath(t *testing.T) {
	s := rendezvous.NewServer([]byte("key"), 3)
	a := &Audience{Overview: overview.New()}
	a.Follow(s, 3, "", "")
	defer a.Overview.Follow()()
	over := make(chan struct{})
	defer close(over)
	go a.Overview.Run(over)
	s.Died(rendezvous.Death{Rank: 0, Host: "h"})
	s.Died(rendezvous.Death{Rank: 1, Host: "h", Signal: 9})
	for {
		text, next := a.Overview.Last(false)
		if text != nil {
			if !strings.Contains(string(text), "Rank 1 on h was killed by signal 9 (SIGKILL)") {
				t.Errorf("%s", text)
			}
			return
		}
		<-next
	}
}

// TestSpansAreToldOfADeath checks that an elastic job's next world begins at the death of a rank.
func TestSpansAreToldOfADeath(t *testing.T) {
	var mu sync.Mutex
	var starts []string // of the spans form
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		for _, m := range regexp.MustCompile(`"name":"form","kind":1,"startTimeUnixNano":"(\d+)"`).
			FindAllSubmatch(text, -1) {
			starts = append(starts, string(m[1]))
		}
	}))
	defer collector.Close()
	j := otlp.Start(otlp.Options{URL: collector.URL, Service: "s", Timeout: time.Minute,
		Warn: func(text string) { t.Error(text) }}, "python")
	first, second := rendezvous.NewServer([]byte("key"), 3), rendezvous.NewServer([]byte("key"), 2)
	a := &Audience{Overview: overview.New(), traces: j}
	a.Follow(first, 3, "", "")
	first.Died(rendezvous.Death{Rank: 1, Host: "h", Signal: 9})
	died := fmt.Sprint(time.Now().UnixNano())
	a.Follow(second, 2, "", "")
	j.End(0)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(starts)
	if len(starts) != 2 || starts[1] > died {
		t.Errorf("the worlds form from %v, and a rank died before %s", starts, died)
	}
}

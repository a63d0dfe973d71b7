package traces

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// stepsVariable makes this program a rank that makes steps for so long.
const stepsVariable = "GOROVOD_TRACES_TEST_STEPS"

// lateness is how much later rank 1 comes to each step.
const lateness = 10 * time.Millisecond

func stepForAWhile(d time.Duration) error {
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	over := []float32{0}
	for began := time.Now(); over[0] == 0; {
		if hvd.Rank() == 1 {
			time.Sleep(lateness)
		}
		if err := hvd.Allreduce(context.Background(), "gradient", make([]float32, 1000)); err != nil {
			return err
		}
		if time.Since(began) > d {
			over[0] = 1
		}
		if err := hvd.Allreduce(context.Background(), "over", over, hvd.WithOp(hvd.Max)); err != nil {
			return err
		}
		if err := hvd.CountSamples(8); err != nil {
			return err
		}
	}
	return nil
}

// The launcher tells a collector of a job's steps: how many, how long, and for whom the ranks waited.
func TestTheCollectorHearsOfSteps(t *testing.T) {
	type value struct {
		StringValue string
		IntValue    string // a number of 64 bits is a string
		DoubleValue float64
	}
	type span struct {
		Name, SpanID, ParentSpanID         string
		StartTimeUnixNano, EndTimeUnixNano string
		Attributes                         []struct {
			Key   string
			Value value
		}
	}
	var mu sync.Mutex
	var spans []span
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			ResourceSpans []struct{ ScopeSpans []struct{ Spans []span } }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range body.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				spans = append(spans, ss.Spans...)
			}
		}
	}))
	defer server.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + server.URL, "GOROVOD_OTLP=1", stepsVariable + "=4s"}
	code, said := run(t, env, self)
	if code != 0 {
		t.Fatalf("code %d:\n%s", code, said)
	}
	byID := map[string]span{}
	for _, s := range spans {
		byID[s.SpanID] = s
	}
	steps := 0
	for _, s := range spans {
		if s.Name != "steps" {
			continue
		}
		a := map[string]value{}
		for _, x := range s.Attributes {
			a[x.Key] = x.Value
		}
		start, _ := strconv.ParseInt(s.StartTimeUnixNano, 10, 64)
		end, _ := strconv.ParseInt(s.EndTimeUnixNano, 10, 64)
		n, _ := strconv.Atoi(a["horovod.steps"].IntValue)
		samples, _ := strconv.Atoi(a["horovod.samples"].IntValue)
		each := a["horovod.step.seconds"].DoubleValue
		seconds := float64(end-start) / 1e9
		// The figures of the two ranks come at slightly different times.
		if byID[s.ParentSpanID].Name != "world" || each < lateness.Seconds() || float64(n)*each > 1.5*seconds+0.2 ||
			float64(n)*each < seconds/2-0.2 || samples < 8*n || a["horovod.slowest.rank"].IntValue != "1" ||
			a["horovod.slowest.waited_seconds"].DoubleValue <= 0 || a["horovod.waiting"].DoubleValue <= 0.1 {
			t.Errorf("%.2f s, below %s: %+v", seconds, byID[s.ParentSpanID].Name, a)
		}
		steps += n
	}
	if steps == 0 {
		t.Errorf("no steps in %+v\n%s", spans, said)
	}
}

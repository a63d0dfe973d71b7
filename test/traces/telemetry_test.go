package traces

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// run runs a command as a job of two ranks, and returns its exit code and the launcher's output.
func run(t *testing.T, env []string, command ...string) (code int, said string) {
	t.Helper()
	cmd := exec.Command(program(t, "horovodrun"), append([]string{"-np", "2"}, command...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// The launcher reports the job and its failure to a collector. Without the switch it reports nothing.
func TestTheCollectorHearsOfAFailure(t *testing.T) {
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct {
						Name   string
						Status struct {
							Code    int
							Message string
						}
					}
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range body.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					got = append(got, s.Name+" "+[]string{"well", "", "failed"}[s.Status.Code]+" "+s.Status.Message)
				}
			}
		}
	}))
	defer server.Close()
	endpoint := "OTEL_EXPORTER_OTLP_ENDPOINT=" + server.URL
	if code, said := run(t, []string{endpoint}, "true"); code != 0 || len(got) > 0 {
		t.Errorf("without the switch: code %d, spans %v\n%s", code, got, said)
	}
	for _, elastic := range [][]string{nil, {"--min-np", "2", "--reset-limit", "0"}} {
		all, last := "", ""
		for range 10 { // the launcher repeats the last lines only if it has read them before rank 0's many lines
			got = nil
			dir := t.TempDir()
			code, said := run(t, []string{endpoint, "GOROVOD_OTLP=1"}, append(elastic, "sh", "-c",
				`cd "$0"
				await() { until [ -e $1 ]; do sleep 0.01; done; sleep 0.2; }
				if [ $HOROVOD_RANK = 0 ]; then await told; seq 200 >&2; touch more; sleep 2; exit 3; fi
				echo password >&2; touch told; await more; exit 3`, dir)...)
			all = strings.Join(got, "\n")
			if code != 3 || !strings.Contains(all, "code 3") || !strings.Contains(all, "job failed") ||
				elastic == nil && !strings.Contains(all, "world well") || strings.Contains(said, "OpenTelemetry") {
				t.Fatalf("code %d, spans\n%s\n%s", code, all, said)
			}
			if _, last, _ = strings.Cut(said, "last lines of its stderr:"); last != "" {
				break
			}
		}
		if !strings.Contains(last, "password") || strings.Contains(all, "password") {
			t.Errorf("output is for the launcher's stderr alone; spans\n%s\nthe launcher: %s", all, last)
		}
	}
}

// If there is no collector, the launcher warns once, and nothing else changes.
func TestNoCollector(t *testing.T) {
	code, said := run(t, []string{"GOROVOD_OTLP=1", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, "sh", "-c",
		"exit 3")
	if code != 3 || strings.Count(said, "collector of OpenTelemetry") != 1 {
		t.Errorf("code %d:\n%s", code, said)
	}
	if code, said := run(t, []string{"GOROVOD_OTLP=maybe"}, "true"); code != 2 ||
		!strings.Contains(said, "GOROVOD_OTLP=maybe: 0 or 1 is needed") {
		t.Errorf("code %d:\n%s", code, said)
	}
}

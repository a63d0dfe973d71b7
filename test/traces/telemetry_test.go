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

// run runs a command as a job of two ranks, and returns its exit code and what the launcher says.
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

// The launcher tells a collector of the job and of its failure. Without the switch it tells nobody.
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
	code, said := run(t, []string{endpoint, "GOROVOD_OTLP=1"}, "sh", "-c", "exit 3")
	all := strings.Join(got, "\n")
	if code != 3 || !strings.Contains(all, "exit with status code 3") || !strings.Contains(all, "job failed") ||
		!strings.Contains(all, "world well") || strings.Contains(said, "OpenTelemetry") {
		t.Errorf("code %d, spans\n%s\n%s", code, all, said)
	}
}

// A collector that is not there changes nothing but for one warning.
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

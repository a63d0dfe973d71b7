package audience

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/observe/dashboard"
	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/metrics"
	"github.com/gorovod/gorovod/internal/observe/otlp"
)

// TestExportedVariablesOpenPages checks that -x sets what the launcher shows of the ranks, and to whom.
func TestExportedVariablesOpenPages(t *testing.T) {
	const token = "0123456789abcdef"
	t.Setenv(metrics.Variable, "")
	var spans atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { spans.Add(1) }))
	defer collector.Close()
	f := &flags.Flags{Export: []string{metrics.Variable + "=0", dashboard.Variable + "=0", door.TokenVariable + "=" +
		token, otlp.Variable + "=1", "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL}}
	a, err := Open(f, "program", 0, func(string) {}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if a.metrics == nil || a.page == nil {
		t.Fatal("a page is not there")
	}
	for _, page := range []string{a.metrics.URL(), a.page.URL() + "snapshot"} {
		answer, err := http.Get(page)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without the token: %s", page, answer.Status)
		}
	}
	if a.End(0, output.Report{}, nil); spans.Load() == 0 {
		t.Error("no spans are sent")
	}
	if _, err := Open(&flags.Flags{Export: []string{otlp.Variable + "=x"}}, "program", 0, nil, nil); err == nil {
		t.Error("a wrong value is ignored")
	}
}

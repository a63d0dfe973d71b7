package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPrometheusScrapes lets the real Prometheus scrape a real job, with a token, and asks it who is late.
func TestPrometheusScrapes(t *testing.T) {
	prometheus, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not there: Debian's package prometheus has it")
	}
	if testing.Short() {
		t.Skip("Prometheus needs some seconds")
	}
	const token = "the-token-of-a-scraper"
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, token)
	j := start(t, []string{"GOROVOD_METRICS_TOKEN_FILE=" + file}, "-np", "2", "--metrics-port", "0")
	target := strings.TrimSuffix(strings.TrimPrefix(j.url, "http://"), "/metrics")
	write(filepath.Join(dir, "prometheus.yml"), fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n"+
		"  - job_name: training\n    authorization: {credentials_file: %s}\n    static_configs: [{targets: ['%s']}]\n",
		file, target))
	page := freeAddress(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, prometheus, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+page)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	rank := ""
	for rank == "" && ctx.Err() == nil {
		time.Sleep(500 * time.Millisecond)
		rank = latest(ctx, page)
	}
	if rank != "1" {
		t.Errorf("Prometheus says that rank %q is late\n%s", rank, j.out)
	}
	cancel()
	cmd.Wait()
	j.end(t)
}

// latest asks Prometheus which rank the others wait for; "" if it does not know yet.
func latest(ctx context.Context, page string) string {
	query := url.Values{"query": {"topk(1, horovod_waited_for_seconds_total > 0.5)"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+page+"/api/v1/query?"+query.Encode(), nil)
	if err != nil {
		return ""
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	var answer struct {
		Data struct {
			Result []struct{ Metric struct{ Rank string } }
		}
	}
	if json.Unmarshal(text, &answer) != nil || len(answer.Data.Result) == 0 {
		return ""
	}
	return answer.Data.Result[0].Metric.Rank
}

// freeAddress returns a loopback address that nobody uses now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

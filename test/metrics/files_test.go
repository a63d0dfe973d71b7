package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// folder has the files for Prometheus and Grafana.
const folder = "../../monitoring"

// metricName finds the names of our metrics in expressions, rules and docs.
var metricName = regexp.MustCompile(`horovod_[a-z_]+`)

// exported returns the names of all metrics in the collector's source.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	source, err := os.ReadFile("../../internal/observe/metrics/collector.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`desc\("([a-z_]+)"`).FindAllSubmatch(source, -1) {
		all["horovod_"+string(m[1])] = true
	}
	if len(all) < 20 {
		t.Fatalf("%d metrics in the source", len(all))
	}
	return all
}

// checkNames checks that text names only metrics that exist, and returns their names.
func checkNames(t *testing.T, what, text string) map[string]bool {
	t.Helper()
	all, named := exported(t), map[string]bool{}
	for _, name := range metricName.FindAllString(text, -1) {
		for _, end := range []string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, end)
		}
		if named[name] = true; !all[name] {
			t.Errorf("%s speaks of %s, which there is not", what, name)
		}
	}
	return named
}

// expressions returns the expressions of the dashboard.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
			GridPos struct{ X, Y, W, H int }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	taken := map[[2]int]string{}
	for _, p := range dashboard.Panels {
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" || at[0] >= 24 {
					t.Fatalf("panel %q covers %q, or leaves the grid", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

// TestFilesNameRealMetrics checks dashboard, rules and docs. The docs have to name every metric.
func TestFilesNameRealMetrics(t *testing.T) {
	checkNames(t, "the dashboard", strings.Join(expressions(t), "\n"))
	for file, complete := range map[string]bool{folder + "/alerts.yml": false, "../../docs/metrics.md": true} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named := checkNames(t, file, string(text))
		for name := range exported(t) {
			if complete && !named[name] {
				t.Errorf("%s does not speak of %s", file, name)
			}
		}
	}
}

// TestPromtool checks the rules, when they fire, and the dashboard's expressions, by Prometheus' own parser.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not there: Debian's package prometheus has it")
	}
	dir := t.TempDir()
	for _, file := range []string{folder + "/alerts.yml", "testdata/alerts_test.yml"} {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, e := range expressions(t) {
		e = strings.NewReplacer("$__rate_interval", "1m").Replace(e)
		fmt.Fprintf(&rules, "      - {record: 'panel_%d', expr: '%s'}\n", i, strings.ReplaceAll(e, "'", "''"))
	}
	if err := os.WriteFile(filepath.Join(dir, "dashboard.yml"), []byte(rules.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml", "dashboard.yml"}, {"test", "rules",
		"alerts_test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

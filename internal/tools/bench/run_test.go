package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch"
	"github.com/gorovod/gorovod/internal/tools/bench"
)

// TestMain lets the test binary be gorovod: the launcher, the supervisors, and the ranks.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case name == "horovodrun" || strings.HasPrefix(name, "gorovod"):
		os.Exit(launch.Main(os.Args))
	case len(os.Args) > 1 && os.Args[1] == "bench":
		os.Exit(bench.Main("gorovod bench", os.Args[2:], os.Stdout, os.Stderr))
	case len(os.Args) > 1 && os.Args[1] == "rank":
		os.Exit(contestRank(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// leftovers are the processes whose command line mentions text.
func leftovers(t *testing.T, text string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(text)) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

func TestGoAlone(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	var progress bytes.Buffer
	r, err := bench.Tiny(context.Background(), 2, bench.Pythons{}, &progress, "go")
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if r.Rounds != 2 || len(r.Failed)+len(r.Skipped) > 0 {
		t.Errorf("%d rounds, failed %v, skipped %v", r.Rounds, r.Failed, r.Skipped)
	}
	l := r.Limits
	if l.AddTraffic == nil || l.TCP == nil || l.Wake == nil || l.Allreduce != l.AddTraffic.Median/4 || l.Mode != 0 {
		t.Fatalf("limits %+v", l)
	}
	if l.Wake.Median <= 0 || l.Wake.Median > 1 || l.TCP.P10 > l.TCP.Median || l.TCP.Median > l.TCP.P90 {
		t.Errorf("wake %+v, tcp %+v", *l.Wake, *l.TCP)
	}
	var rows []string
	for _, x := range r.Results {
		rows = append(rows, fmt.Sprint(x.Peer, " ", x.Task, " ", x.Bytes))
		if x.Time.N < 2 || x.Time.Median <= 0 || x.AlgBW != float64(x.Bytes)/x.Time.Median || x.BusBW != x.AlgBW ||
			x.OfLimit != x.AlgBW/l.Allreduce {
			t.Errorf("%+v", x)
		}
	}
	want := []string{"go allreduce 4", "go allreduce 4096", "go allreduce 1048576", "go 1000 floats 4000",
		"go 1000 floats, grouped 4000", "go submitting one tensor 64"}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	var text, table bytes.Buffer
	if err := r.Files(&text, &table); err != nil {
		t.Fatal(err)
	}
	again := new(bench.Report)
	err = json.Unmarshal(text.Bytes(), again)
	if err != nil || !reflect.DeepEqual(r, again) {
		t.Errorf("error %v; read\n%+v, written\n%+v", err, again, r)
	}
	for _, want := range []string{"limit of an allreduce", "1 MiB", "1000 floats, grouped", "of the limit"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
	if left := leftovers(t, os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if files, _ := os.ReadDir(os.Getenv("TMPDIR")); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

// shortDir is a temporary directory with a short name, so that a socket's name fits.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "bench-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// whenWarm is a progress writer that calls f when the ranks begin to warm up.
type whenWarm struct {
	bytes.Buffer
	f func()
}

func (w *whenWarm) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("warming up")) && w.f != nil {
		w.f()
		w.f = nil
	}
	return w.Buffer.Write(p)
}

func TestCancelLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begin := time.Now()
	r, err := bench.Tiny(ctx, 2, bench.Pythons{}, &whenWarm{f: cancel}, "go")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("report %v, error %v after %v", r, err, time.Since(begin))
	}
	if left := leftovers(t, os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if files, _ := os.ReadDir(os.Getenv("TMPDIR")); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

// TestOpenMPI needs Open MPI, and compiles the C program.
func TestOpenMPI(t *testing.T) {
	if testing.Short() {
		t.Skip("its jobs take a while")
	}
	header := exec.Command("mpicc", "-E", "-")
	header.Stdin = strings.NewReader("#include <mpi.h>\n")
	if err := header.Run(); err != nil {
		t.Skip("mpicc is not installed, or lacks mpi.h (Debian: libopenmpi-dev)")
	}
	t.Setenv("TMPDIR", shortDir(t))
	var progress bytes.Buffer
	r, err := bench.Tiny(context.Background(), 2, bench.Pythons{}, &progress, "go", "openmpi")
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if len(r.Failed) > 0 {
		t.Fatalf("failed %v\n%s", r.Failed, &progress)
	}
	ratios := 0
	for _, x := range r.Results {
		if x.Peer == "go" && x.Ratios["openmpi"] > 0 {
			ratios++
		}
	}
	if ratios != 4 || r.Limits.Mode <= 0 {
		t.Errorf("%d ratios, mode %v", ratios, r.Limits.Mode)
	}
}

// TestPython needs the results of make, and runs the Python program in both of its ways.
func TestPython(t *testing.T) {
	if testing.Short() {
		t.Skip("importing torch five times takes a while")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	python, err := os.ReadFile(filepath.Join(root, "build/python"))
	if err != nil {
		t.Skip("build/python is not there: run make prepare first")
	}
	if _, err := os.Stat(filepath.Join(root, "build/libgorovod.so")); err != nil {
		t.Skip("build/libgorovod.so is not there: run make build first")
	}
	t.Setenv("PYTHONPATH", filepath.Join(root, "python"))
	t.Setenv("TMPDIR", shortDir(t))
	var progress bytes.Buffer
	r, err := bench.Tiny(context.Background(), 2, bench.Pythons{Ours: strings.TrimSpace(string(python))}, &progress,
		"go", "python", "gloo")
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if len(r.Failed) > 0 {
		t.Fatalf("failed %v\n%s", r.Failed, &progress)
	}
	rows := map[string]int{}
	for _, x := range r.Results {
		rows[x.Peer]++
	}
	if want := map[string]int{"go": 6, "python": 6, "gloo": 4}; !reflect.DeepEqual(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
}

// upstream is a Python as far as bench can see. Its horovodrun starts this project's ranks, and fails at once if it
// sees this project's package.
const upstream = `#!/bin/sh
[ -z "$PYTHONPATH" ] || { echo "PYTHONPATH is $PYTHONPATH"; exit 3; } >&2
case "$1 $2" in
"-c "*) echo '{"torch": "9", "horovod": "0.1", "controllers": ["gloo", "mpi"]}' ;;
"-m horovod.runner.launch")
	np=$4 controller=$5
	shift 5
	case "$controller $1" in "--mpi --mpi-args="*) shift ;; "--gloo /"*) ;; *) echo "$controller $*" >&2; exit 4 ;; esac
	exec "$HERE/horovodrun" -np "$np" "$HERE/program" bench worker "$3" "$4" ;;
*) exit 5 ;;
esac
`

func TestUpstreamsControllers(t *testing.T) {
	if testing.Short() {
		t.Skip("its jobs take a while")
	}
	dir := shortDir(t)
	t.Setenv("TMPDIR", dir)
	t.Setenv("PYTHONPATH", "/somewhere")
	tools := t.TempDir()
	t.Setenv("HERE", tools)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"horovodrun", "program"} {
		if err := os.Symlink(program, filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	python := filepath.Join(tools, "python")
	if err := os.WriteFile(python, []byte(upstream), 0o700); err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	r, err := bench.Tiny(context.Background(), 2, bench.Pythons{Upstream: python}, &progress, "go", "horovod")
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if len(r.Failed) > 0 {
		t.Fatalf("failed %v\n%s", r.Failed, &progress)
	}
	rows := map[string]int{}
	for _, x := range r.Results {
		rows[x.Peer]++
	}
	if want := map[string]int{"go": 6, "horovod-gloo": 6, "horovod-mpi": 6}; !reflect.DeepEqual(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A run whose time is over early prints its results so far, and no empty table; stderr tells of the jobs' start and of
// what was left out.
func TestTimeTooShort(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	var stdout, stderr bytes.Buffer
	code := bench.Main("gorovod bench", strings.Fields("--time 1 --peers go"), &stdout, &stderr)
	if code != 1 || strings.Contains(stdout.String(), "Time, median") != strings.Contains(stdout.String(), "  4 B") ||
		!strings.Contains(stderr.String(), "give it more with --time") {
		t.Errorf("code %d, %q, %q", code, &stdout, &stderr)
	}
	if !regexp.MustCompile(`(?s)bench: starting the jobs\n.*bench: gorovod \(Go\) is ready after `).Match(stderr.Bytes()) {
		t.Errorf("progress: %s", &stderr)
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--np 0", "--num-proc 0: a number from 1"},
		{"--time 0.5", "--time 0.5: a number of seconds"},
		{"--time NaN", "--time NaN: a number of seconds"},
		{"--plot x.pdf", "--plot x.pdf: a name that ends in .svg or .png is needed"},
		{"--max-size 0", "--max-size 0: a number of MiB"},
		{"--peers go,nccl", `"nccl" is none of go, python`},
		{"--peers gloo", "go must be among them"},
		{"--peers go,horovod", "say with --horovod"},
		{"--nonsense", "--nonsense"},
		{"more", "more"},
	} {
		var stdout, stderr bytes.Buffer
		if code := bench.Main("gorovod bench", strings.Fields(c.args), &stdout, &stderr); code != 2 ||
			!strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: code %d, %q, want %q", c.args, code, &stderr, c.want)
		}
	}
	var stdout bytes.Buffer
	if code := bench.Main("gorovod bench", []string{"--help"}, &stdout, io.Discard); code != 0 ||
		!strings.Contains(stdout.String(), "--quick") {
		t.Errorf("help: code %d, %s", code, &stdout)
	}
	var stderr bytes.Buffer
	if code := bench.Main("gorovod bench", []string{"worker"}, io.Discard, &stderr); code != 1 ||
		!strings.Contains(stderr.String(), "by bench itself") {
		t.Errorf("worker: code %d, %s", code, &stderr)
	}
}

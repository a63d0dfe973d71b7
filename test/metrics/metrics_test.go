// Package metrics tests horovodrun --metrics-port with real jobs.
package metrics

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
	"github.com/gorovod/gorovod/test/output"
)

// rankVariable makes this program a rank. Its value says what the rank does.
const rankVariable = "GOROVOD_METRICS_TEST_RANK"

// staysVariable lets the process of a rank whose operations fail stay for a minute.
const staysVariable = "GOROVOD_METRICS_TEST_STAYS"

func TestMain(m *testing.M) {
	if part := os.Getenv(rankVariable); part != "" {
		if err := rank(part); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rank computes sums until rank 0 has seen the file stop.
func rank(stop string) error {
	if os.Getenv("GOROVOD_METRICS_TOKEN") != "" {
		return fmt.Errorf("the ranks inherit the token")
	}
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	file := stop + ".pid"
	if hvd.Rank() > 0 {
		file += strconv.Itoa(hvd.Rank())
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	if once := os.Getenv(nanVariable); once != "" {
		return trainWithANaN(stop, once)
	}
	if os.Getenv(quietVariable) != "" {
		return quiet(stop)
	}
	data := make([]float32, 1000)
	if os.Getenv(largeVariable) != "" {
		data = make([]float32, 1<<20)
	}
	for {
		last, err := step(stop, data)
		if err != nil && os.Getenv(staysVariable) != "" {
			time.Sleep(time.Minute)
		}
		if err != nil || last {
			return err
		}
	}
}

// over reports that the job shall end: the file stop is there, or its test has ended, and so the file's folder is gone.
func over(stop string) bool {
	if _, err := os.Stat(stop); err == nil {
		return true
	}
	_, err := os.Stat(filepath.Dir(stop))
	return err != nil
}

// step is one step of a training. last: the job shall end, and all ranks know it.
func step(stop string, data []float32) (last bool, err error) {
	if hvd.Rank() == 1 {
		time.Sleep(5 * time.Millisecond)
	}
	ends := []int32{0}
	if hvd.Rank() == 0 && over(stop) {
		ends[0] = 1
	}
	if err := hvd.Allreduce(context.Background(), "over", ends, hvd.WithOp(hvd.Sum)); err != nil || ends[0] > 0 {
		return true, err
	}
	if err := hvd.Allreduce(context.Background(), "gradient", data); err != nil {
		return false, err
	}
	return false, hvd.CountSamples(64)
}

// job is a job that runs until the test ends it.
type job struct {
	cmd    *exec.Cmd
	stop   string
	out    *output.Buffer
	ended  chan error
	client http.Client
	url    string
}

var address = regexp.MustCompile(`metrics are at (\S+)`)

// start runs the job, and returns once it serves metrics.
func start(t *testing.T, env []string, args ...string) *job {
	t.Helper()
	return startBy(t, env, append(append([]string{built(t, "horovodrun")}, args...), os.Args[0])...)
}

// built is the path of a program that make build makes.
func built(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../build/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("build/%s is not there: run make build first", name)
	}
	return path
}

// startBy runs a job by a command line, and returns once it serves metrics.
func startBy(t *testing.T, env []string, line ...string) *job {
	t.Helper()
	j := &job{stop: filepath.Join(t.TempDir(), "stop"), out: &output.Buffer{}, ended: make(chan error, 1)}
	j.client.Timeout = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	j.cmd = exec.CommandContext(ctx, line[0], line[1:]...)
	j.cmd.Env = append(append(os.Environ(), rankVariable+"="+j.stop), env...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	j.cmd.Stdout, j.cmd.Stderr = w, w
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	told := make(chan string, 1)
	go func() {
		defer r.Close()
		p := make([]byte, 4096)
		for {
			n, err := r.Read(p)
			j.out.Write(p[:n])
			if m := address.FindStringSubmatch(j.out.String()); m != nil {
				select {
				case told <- m[1]:
				default:
				}
			}
			if err != nil {
				break
			}
		}
		j.ended <- j.cmd.Wait()
	}()
	select {
	case j.url = <-told:
	case err := <-j.ended:
		t.Fatalf("the job serves no metrics: %v\n%s", err, j.out)
	}
	return j
}

// end lets the job end, and checks that it succeeds.
func (j *job) end(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(j.stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-j.ended; err != nil {
		t.Errorf("%v\n%s", err, j.out)
	}
}

// get returns the status code and the page, "" if there is no answer.
func (j *job) get(path string, token string) (int, string) {
	request, err := http.NewRequest(http.MethodGet, strings.TrimSuffix(j.url, "/metrics")+path, nil)
	if err != nil {
		return 0, ""
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	r, err := j.client.Do(request)
	if err != nil {
		return 0, ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(text)
}

// value is the value in a line of the page, -1 if there is no such line.
func value(page, name string) float64 {
	for line := range strings.Lines(page) {
		if text, ok := strings.CutPrefix(line, "horovod_"+name+" "); ok {
			v, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return v
		}
	}
	return -1
}

// await asks until good accepts the page.
func (j *job) await(t *testing.T, what, token string, good func(page string) bool) string {
	t.Helper()
	page := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if _, page = j.get("/metrics", token); good(page) {
			return page
		}
	}
	t.Errorf("%s: not within a minute\n%s\n%s", what, page, j.out)
	return page
}

// TestTheLatestRankIsNamed runs a job in which rank 1 is late, and reads the page as Prometheus does.
func TestTheLatestRankIsNamed(t *testing.T) {
	j := start(t, nil, "-np", "3", "--metrics-port", "0")
	least := map[string]float64{"world_size": 3, `workers{state="joined"}`: 3,
		`collectives_total{dtype="float32",op="allreduce",process_set="0"}`: 30, "negotiation_seconds_count": 30,
		`collective_seconds_count{op="allreduce",size_class="32KiB"}`: 30, `resident_memory_bytes{rank="2"}`: 1 << 20,
		"step_seconds_count": 30, "steps_total": 10, "samples_total": 640, `waited_for_seconds_total{rank="1"}`: 0.5}
	page := j.await(t, fmt.Sprintf("at least %v", least), "", func(page string) bool {
		for name, v := range least {
			if value(page, name) < v {
				return false
			}
		}
		return true
	})
	late := value(page, `waited_for_seconds_total{rank="1"}`)
	for _, rank := range []string{"0", "2"} {
		if others := value(page, `waited_for_seconds_total{rank="`+rank+`"}`); others > late/4 {
			t.Errorf("rank 1 is late by %v s, and rank %s by %v s", late, rank, others)
		}
	}
	if code, text := j.get("/readyz", ""); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, text)
	}
	if promtool, err := exec.LookPath("promtool"); err == nil {
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = strings.NewReader(page)
		if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("promtool: %v\n%s", err, out)
		}
	}
	j.end(t)
}

// TestElasticJobs checks that an elastic job serves the page if the environment variable asks for it.
func TestElasticJobs(t *testing.T) {
	const secret = "the-secret-of-this-test"
	j := start(t, []string{"GOROVOD_METRICS=127.0.0.1:0", "GOROVOD_METRICS_TOKEN=" + secret}, "-np", "2", "--min-np",
		"1")
	j.await(t, "two workers", secret, func(page string) bool {
		return value(page, "world_size") == 2 && value(page, "reporting_ranks") == 2 &&
			value(page, `elastic_resets_total{cause="failure"}`) == 0
	})
	if code, _ := j.get("/metrics", ""); code != http.StatusUnauthorized {
		t.Errorf("without the token: %d", code)
	}
	j.end(t)
	if strings.Contains(j.out.String(), secret) {
		t.Errorf("the token is in the log: %s", j.out)
	}
}

// TestReadersDoNotDisturbTheJob lets very many readers connect while a job runs. Most of them never read.
func TestReadersDoNotDisturbTheJob(t *testing.T) {
	j := start(t, nil, "-np", "2", "--metrics-port", "0")
	const work = "negotiation_seconds_count"
	before := value(j.await(t, "work", "", func(page string) bool { return value(page, work) > 0 }), work)
	addr := strings.TrimSuffix(strings.TrimPrefix(j.url, "http://"), "/metrics")
	var open []net.Conn
	for i := range 10000 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if i%3 > 0 {
			io.WriteString(c, []string{"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "\x00garbage\r\n\r\n"}[i%2])
		}
		if open = append(open, c); len(open) == 500 {
			for _, c := range open {
				c.Close()
			}
			open = open[:0]
		}
	}
	j.await(t, "work goes on", "", func(page string) bool { return value(page, work) > before })
	j.end(t)
}

// TestBadOptions checks that a job does not start if it cannot serve the page that the options ask for.
func TestBadOptions(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ env, port, ranks, says string }{
		{port: "x", says: "--metrics-port"}, {port: "0.0.0.0:0", says: "GOROVOD_METRICS_TOKEN_FILE"},
		{port: fmt.Sprint(l.Addr().(*net.TCPAddr).Port), says: "in use"},
		{env: "GOROVOD_METRICS=x", says: "GOROVOD_METRICS"},
		{env: "GOROVOD_METRICS_TOKEN=short", port: "0", says: "16"},
		{env: "GOROVOD_METRICS_TOKEN=0123456789abcdef", port: "0.0.0.0:0", ranks: "GOROVOD_TLS=1",
			says: "GOROVOD_METRICS_CERT"}} {
		args := []string{"-np", "1"}
		if c.ranks != "" {
			args = append(args, "-x", c.ranks)
		}
		if c.port != "" {
			args = append(args, "--metrics-port", c.port)
		}
		cmd := exec.Command("../../build/horovodrun", append(args, "true")...)
		cmd.Env = append(os.Environ(), c.env)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.says) {
			t.Errorf("%+v: %v, %s", c, err, out)
		}
	}
}

package metrics

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/output"
)

// driven is a job of two workers that gorovod drive drives and this test starts.
type driven struct {
	*job
	t       *testing.T
	stdin   io.WriteCloser
	events  chan map[string]any
	said    string
	workers []*exec.Cmd
}

// secret is the secret of a driven job.
var secret = strings.Repeat("0f", 32)

// drives starts gorovod drive, and the workers as it tells.
func drives(t *testing.T, env []string, args ...string) *driven {
	t.Helper()
	d := &driven{t: t, events: make(chan map[string]any, 64), job: &job{out: &output.Buffer{},
		stop: filepath.Join(t.TempDir(), "stop"), ended: make(chan error, 1)}}
	d.client.Timeout = 5 * time.Second
	d.cmd = exec.Command(built(t, "gorovod"), append([]string{"drive"}, args...)...)
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stderr = d.out
	var err error
	if d.stdin, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			e := map[string]any{}
			json.Unmarshal(lines.Bytes(), &e)
			d.events <- e
		}
		close(d.events)
		d.ended <- d.cmd.Wait()
	}()
	t.Cleanup(func() {
		d.stdin.Close()
		for _, w := range d.workers {
			w.Process.Kill()
		}
	})
	fmt.Fprintf(d.stdin, `{"type":"config","version":1,"key":"%s","np":2,"address":"127.0.0.1","grace":1}`+"\n", secret)
	fmt.Fprintln(d.stdin, `{"type":"hosts","hosts":[{"name":"here","slots":2}]}`)
	for len(d.workers) < 2 {
		d.obey()
	}
	return d
}

// obey handles the next event, and returns its type; empty at the end.
func (d *driven) obey() string {
	d.t.Helper()
	var e map[string]any
	select {
	case e = <-d.events:
	case <-time.After(time.Minute):
	}
	switch e["type"] {
	case nil:
		d.t.Fatalf("the driver says nothing more: %s", d.out)
	case "say":
		d.said += e["text"].(string) + "\n"
	case "signal":
		d.workers[int(e["worker"].(float64))].Process.Kill()
	case "start":
		w := exec.Command(os.Args[0])
		w.Env = append(os.Environ(), rankVariable+"="+d.stop, "HOROVOD_SECRET_KEY="+secret)
		for name, value := range e["environment"].(map[string]any) {
			w.Env = append(w.Env, name+"="+value.(string))
		}
		w.Stdout, w.Stderr = os.Stdout, os.Stderr
		if err := w.Start(); err != nil {
			d.t.Fatal(err)
		}
		fmt.Fprintf(d.stdin, `{"type":"started","worker":%d,"pid":%d}`+"\n", len(d.workers), w.Process.Pid)
		d.workers = append(d.workers, w)
	}
	return e["type"].(string)
}

// over waits for the ends of the workers and of the driver.
func (d *driven) over() {
	d.t.Helper()
	for number, w := range d.workers {
		w.Wait()
		fmt.Fprintf(d.stdin, `{"type":"ended","worker":%d,"host":"here","code":%d}`+"\n", number,
			max(w.ProcessState.ExitCode(), 0))
		fmt.Fprintf(d.stdin, `{"type":"gone","worker":%d}`+"\n", number)
	}
	for d.obey() != "outcome" {
	}
	if err := <-d.ended; err != nil {
		d.t.Errorf("%v\n%s", err, d.out)
	}
}

// collector is a collector of OpenTelemetry. Do not read spans before the job is over.
type collector struct {
	*httptest.Server
	spans bytes.Buffer
}

func collect(t *testing.T) *collector {
	c := &collector{}
	var one sync.Mutex
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one.Lock()
		defer one.Unlock()
		io.Copy(&c.spans, r.Body)
	}))
	t.Cleanup(c.Close)
	return c
}

// TestDrivenJobs looks at the pages of a job that gorovod drive drives, by options and by variables, until the job has
// ended well, or is interrupted.
func TestDrivenJobs(t *testing.T) {
	for name, c := range map[string]struct {
		env, args []string
		interrupt bool
		want      string // how the page says that the job has ended
	}{
		"options":   {nil, []string{"--metrics-port=0", "--dashboard"}, false, `{"code":0`},
		"variables": {[]string{"GOROVOD_METRICS=0", "GOROVOD_DASHBOARD=0"}, nil, true, `enough of it`},
	} {
		t.Run(name, func(t *testing.T) {
			collector := collect(t)
			d := drives(t, append(c.env, "GOROVOD_SUMMARY=1", "GOROVOD_OTLP=1",
				"OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL), c.args...)
			metrics := address.FindStringSubmatch(d.said)
			page := regexp.MustCompile(`the dashboard is at (\S+)`).FindStringSubmatch(d.said)
			if metrics == nil || page == nil {
				t.Fatalf("the driver does not say where the pages are: %q", d.said)
			}
			d.url = metrics[1]
			d.await(t, "the figures of both ranks", "", func(page string) bool {
				return value(page, "reporting_ranks") == 2 && value(page, `workers{state="joined"}`) == 2 &&
					value(page, `waited_for_seconds_total{rank="1"}`) > 0.1
			})
			events, err := http.Get(page[1] + "events")
			if err != nil {
				t.Fatal(err)
			}
			defer events.Body.Close()
			news := bufio.NewReader(events.Body)
			for line := ""; !strings.Contains(line, "The others wait for rank 1"); {
				if line, err = news.ReadString('\n'); err != nil {
					t.Fatalf("the page does not name rank 1: %v", err)
				}
			}
			if c.interrupt {
				fmt.Fprintln(d.stdin, `{"type":"interrupt","reason":"enough of it"}`)
				for d.obey() != "signal" {
				}
				for d.obey() != "signal" {
				}
			} else if err := os.WriteFile(d.stop, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d.over()
			if told := strings.Contains(d.said, "where the time of 2 ranks went in "); told == c.interrupt {
				t.Errorf("a summary: %v, in %q", told, d.said)
			}
			for _, span := range []string{"job", "world", "form"} {
				if spans := collector.spans.String(); !strings.Contains(spans, `"name":"`+span+`"`) {
					t.Errorf("there is no span %s in %s", span, spans)
				}
			}
			if rest, err := io.ReadAll(news); err != nil || !strings.Contains(string(rest), c.want) {
				t.Errorf("%v: there is no %q in %s", err, c.want, rest)
			}
		})
	}
}

// TestNothingShowsADrivenJob: what the driver cannot open ends it, as it does horovodrun.
func TestNothingShowsADrivenJob(t *testing.T) {
	c := exec.Command(built(t, "gorovod"), "drive", "--dashboard=0.0.0.0:0")
	out, err := c.CombinedOutput()
	if c.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "give a token") {
		t.Errorf("%v: %s", err, out)
	}
}

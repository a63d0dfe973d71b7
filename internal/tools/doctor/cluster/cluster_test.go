package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/load"
)

func TestRoundsMeetEachPairOnce(t *testing.T) {
	for n := range 20 {
		met := map[[2]int]bool{}
		rounds := Rounds(n, 100)
		for _, round := range rounds {
			busy := map[int]bool{}
			for _, p := range round {
				if p[0] >= p[1] || busy[p[0]] || busy[p[1]] || met[p] {
					t.Fatalf("%d hosts: %v", n, rounds)
				}
				busy[p[0]], busy[p[1]], met[p] = true, true, true
			}
		}
		if len(met) != n*(n-1)/2 {
			t.Errorf("%d hosts: %d pairs", n, len(met))
		}
	}
	if got := len(Rounds(100, 7)); got != 7 {
		t.Errorf("%d rounds", got)
	}
}

func TestProbe(t *testing.T) {
	key := []byte("the secret")
	l, err := Listen(key)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		l.Serve()
	}()
	at := fmt.Sprintf("127.0.0.1:%d", l.Port())
	stranger, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	stranger.Write([]byte("GET / HTTP/1.1\r\nsome more than the magic is long\r\n\r\n"))
	if n, err := io.Copy(io.Discard, stranger); n > 200 {
		t.Errorf("a stranger was told %d bytes: %v", n, err)
	}
	stranger.Close()
	if _, err := Probe(t.Context(), []byte("another"), []string{at}); err == nil {
		t.Error("who has another secret was served")
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	p, err := Probe(t.Context(), key, []string{closed.Addr().String(), at})
	if err != nil || p.Address != at || p.Latency <= 0 || p.Bandwidth <= 0 {
		t.Errorf("%+v, %v", p, err)
	}
	<-served
	if _, err := Probe(t.Context(), key, []string{at}); err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("after the one probe: %v", err)
	}
	if _, err := Probe(t.Context(), key, nil); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("without addresses: %v", err)
	}
}

func TestInspect(t *testing.T) {
	f := Inspect(context.Background(), "no-such-python", nil)
	if f.Cores < 1 || f.Online < f.Cores || f.Memory <= 0 || f.Files <= 0 || f.Ports <= 0 || f.Affinity == "" ||
		f.Python != "" || f.PythonProblem == "" || f.Version == "" || time.Since(f.Time) > time.Minute {
		t.Errorf("%+v", f)
	}
}

func healthy(name string) Host {
	return Host{Name: name, Slots: 2, Facts: Facts{Version: "1", Arch: "amd64", Cores: 4, Online: 4, Memory: 8 << 30,
		Shm: 4 << 30, Files: 65536, Locked: unlimited, Ports: 28232, Addresses: []Address{{"eth0", "10.0.0.1"}},
		Python: "3.12.1", Frameworks: map[string]string{"torch": "2.9.0"}}}
}

func TestFindings(t *testing.T) {
	link := Pair{From: 0, To: 1, Path: Path{Bandwidth: 1e9, Latency: 20 * time.Microsecond}}
	for name, c := range map[string]struct {
		spoil func(h []Host, p []Pair)
		want  string // level, host, and words
	}{
		"well": {func([]Host, []Pair) {}, ""},
		"error": {func(h []Host, _ []Pair) { h[1].Err = errors.New("host b: ssh failed\n    do something") },
			"FAILURE b ssh failed"},
		"address": {func(h []Host, _ []Pair) { h[1].Facts.Addresses = nil }, "FAILURE b no address"},
		"shm":     {func(h []Host, _ []Pair) { h[1].Facts.Shm = 64 << 20 }, "warning b /dev/shm has 64 MiB"},
		"files":   {func(h []Host, _ []Pair) { h[1].Facts.Files = 256 }, "warning b 256 files"},
		"slots":   {func(h []Host, _ []Pair) { h[1].Slots = 5 }, "warning b 5 slots on 4 cores"},
		"quota":   {func(h []Host, _ []Pair) { h[1].Facts.Quota = 1.5 }, "warning b 2 slots on 1.5 cores"},
		"ports":   {func(h []Host, _ []Pair) { h[1].Facts.Ports = 500 }, "warning b 500 ports"},
		"memory":  {func(h []Host, _ []Pair) { h[1].Facts.MemoryLimit = 2 << 30 }, "note b 2 GiB of 8 GiB"},
		"cores": {func(h []Host, _ []Pair) {
			h[1].Slots, h[1].Facts.Cores, h[1].Facts.Affinity = 2, 1, "3"
		}, "warning b 2 slots on 1 cores"},
		"clock":  {func(h []Host, _ []Pair) { h[1].Clock = -3 * time.Second }, "warning b 3s behind"},
		"doubt":  {func(h []Host, _ []Pair) { h[1].Clock, h[1].Doubt = 3*time.Second, 4*time.Second }, ""},
		"arch":   {func(h []Host, _ []Pair) { h[1].Facts.Arch = "arm64" }, "FAILURE  amd64 on a c, arm64 on b"},
		"torch":  {func(h []Host, _ []Pair) { h[1].Facts.Frameworks = nil }, "warning  torch: 2.9.0 on a c, none on b"},
		"python": {func(h []Host, _ []Pair) { h[1].Facts.Python = "3.8" }, "warning  Python's version"},
		"no python": {func(h []Host, _ []Pair) {
			for i := range h {
				h[i].Facts.Asked, h[i].Facts.Python, h[i].Facts.PythonProblem = DefaultPython, "", "it has died"
			}
		}, "warning a nothing is known of the Python python3, whose frameworks count: it has died"},
		"the user's python": {func(h []Host, _ []Pair) {
			h[1].Facts.Asked, h[1].Facts.Named, h[1].Facts.Python = "/opt/python", true, ""
			h[1].Facts.PythonProblem = "it has died"
		},
			"FAILURE b nothing is known of the Python /opt/python"},
		"nccl": {func(h []Host, _ []Pair) { h[1].Facts.NCCLProblem = "the Python has ended" },
			"warning b the Python has ended"},
		"two": {func(h []Host, _ []Pair) {
			for i := range h {
				h[i].Facts.Frameworks = map[string]string{"gorovod": "1", "horovod": "0.28.1"}
			}
		}, "warning a Horovod and gorovod"},
		"spark": {func(h []Host, _ []Pair) {
			for i := range h {
				h[i].Facts.Frameworks, h[i].Facts.Java = map[string]string{"pyspark": "4.3.0"}, "/usr/bin/java"
			}
		}, "note  untested against the service"},
		"java": {func(h []Host, _ []Pair) {
			h[1].Facts.Frameworks = map[string]string{"torch": "2.9.0", "pyspark": "4.3.0"}
		}, "warning b there is no Java"},
		"connection": {func(_ []Host, p []Pair) { p[1].Err = errors.New("10.0.0.2:5: refused") },
			"FAILURE a → b no connection: 10.0.0.2:5: refused"},
		"slow": {func(_ []Host, p []Pair) { p[2].Path.Bandwidth = 2e8 }, "warning a → b 1.60 Gbit/s"},
		"busy": {func(h []Host, _ []Pair) { h[1].Facts.Load = load.Load{Average: 10, Running: 9, Cores: 2} },
			"warning b load average 10.0 on 2 cores: other programs need the cores, too"},
		"own work": {func(h []Host, _ []Pair) { h[1].Facts.Load = load.Load{Average: 1.5, Running: 2, Cores: 2} }, ""},
		"locked": {func(h []Host, _ []Pair) { h[1].Facts.GPUs, h[1].Facts.Locked = 1, 1<<16 },
			"warning b 0.1 MiB of memory may be locked"},
	} {
		hosts := []Host{healthy("a"), healthy("b"), healthy("c")}
		pairs := []Pair{link, link, link}
		c.spoil(hosts, pairs)
		found := Check(hosts, pairs)
		if (len(found) > 0) != (c.want != "") {
			t.Errorf("%s: %+v", name, found)
			continue
		}
		if c.want == "" {
			continue
		}
		f := found[0]
		level, rest, _ := strings.Cut(c.want, " ")
		if f.Level.String() != level || !strings.HasPrefix(rest, f.Host) || !strings.Contains(f.What,
			strings.TrimSpace(strings.TrimPrefix(rest, f.Host))) || f.Advice == "" {
			t.Errorf("%s: %+v, want %s", name, f, c.want)
		}
		var b strings.Builder
		well, err := Report(&b, hosts, pairs, Variables{}, 0)
		if well != (level != "FAILURE") || err != nil || !strings.Contains(b.String(), f.What) ||
			!strings.Contains(b.String(), f.Advice) {
			t.Errorf("%s: %v %v\n%s", name, well, err, &b)
		}
	}
}

// The report predicts a job's algorithms from the slowest pair of hosts, and leaves them out if a pair was not
// measured.
func TestReportOfChoices(t *testing.T) {
	const far, near = 2 * time.Millisecond, 20 * time.Microsecond
	pairs := []Pair{{From: 0, To: 1, Path: Path{Bandwidth: 125e6, Latency: near}},
		{From: 1, To: 2, Path: Path{Bandwidth: 125e7, Latency: far}}}
	const want = "recursive doubling up to 256 KiB, recursive halving up to 2048 KiB, the ring above"
	if got := choices(8, pairs); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := choices(8, append(pairs, Pair{From: 0, To: 2, Err: errors.New("no way")})); got != "" {
		t.Error(got)
	}
}

func TestReport(t *testing.T) {
	hosts := []Host{healthy("a"), healthy("b")}
	hosts[1].Clock = 20 * time.Millisecond
	var b strings.Builder
	well, err := Report(&b, hosts,
		[]Pair{{From: 0, To: 1, Path: Path{Bandwidth: 1.25e9, Latency: 12300 * time.Nanosecond}}}, Variables{}, 80)
	const want = `HOSTS       a, b
SLOTS       2
CORES       4
MEMORY      8 GiB
/dev/shm    4 GiB
FILES       65536
LOCKED      unlimited
PORTS       28232
CLOCK       same on a
            +20ms on b
GPUS        0
PYTHON      3.12.1
FRAMEWORKS  torch 2.9.0
MPI         -
NCCL        -
ADDRESSES   eth0 10.0.0.1

LATENCY in µs, from the row to the column
     a     b
  a  -  12.3
  b  -     -

BANDWIDTH in Gbit/s, one connection
     a      b
  a  -  10.00
  b  -      -

ALLREDUCE between these hosts: recursive doubling up to 128 KiB, the ring above

All is well.
`
	if !well || err != nil || b.String() != want {
		t.Errorf("%v %v\n%s", well, err, &b)
	}
	b.Reset()
	well, err = Report(&b, hosts, nil, Variables{errors.New("A=1: why\nB=2: how"), []string{"C is odd"}}, 80)
	const failures = `
FAILURE: this environment: A=1: why
    gorovod doctor --env lists the variables
FAILURE: this environment: B=2: how
    gorovod doctor --env lists the variables
warning: this environment: C is odd
    gorovod doctor --env lists the variables
A job over these hosts cannot run.
`
	if well || err != nil || !strings.HasSuffix(b.String(), failures) {
		t.Errorf("%v %v\n%s", well, err, &b)
	}
	b.Reset()
	const alone = `HOST        a
SLOTS       2
CORES       4
MEMORY      8 GiB
/dev/shm    4 GiB
FILES       65536
LOCKED      unlimited
PORTS       28232
CLOCK       same
GPUS        0
PYTHON      3.12.1
FRAMEWORKS  torch 2.9.0
MPI         -
NCCL        -
ADDRESSES   eth0 10.0.0.1

All is well.
`
	if well, err := Report(&b, hosts[:1], nil, Variables{}, 80); !well || err != nil || b.String() != alone {
		t.Errorf("one host: %v %v\n%s", well, err, &b)
	}
	var many []Host
	var pairs []Pair
	for i := range 20 {
		many = append(many, healthy(fmt.Sprintf("h%d", i)))
		pairs = append(pairs, Pair{From: i, To: (i + 1) % 20, Path: Path{Bandwidth: float64(1+i) * 1e8}})
	}
	b.Reset()
	if _, err := Report(&b, many, pairs, Variables{}, 0); err != nil || !strings.Contains(b.String(),
		"20 pairs were measured; the middle one has 8.80 Gbit/s. The slowest:\n  h0 → h1  0.80 Gbit/s") {
		t.Errorf("%v\n%s", err, &b)
	}
}

// TestReportFitsItsColumns: no line is wider than the terminal, and nothing is lost.
func TestReportFitsItsColumns(t *testing.T) {
	var hosts []Host
	var pairs []Pair
	for i := range 10 {
		h := healthy(fmt.Sprintf("compute-node-%d", i))
		h.Facts.Load = load.Load{Average: 23, Running: 20, Cores: 2}
		h.Facts.Addresses = []Address{{"eth0", fmt.Sprintf("10.0.0.%d", i)}, {"eth0", fmt.Sprintf("fd00::%d", i)}}
		hosts = append(hosts, h)
		for j := range i {
			pairs = append(pairs, Pair{From: j, To: i, Path: Path{Bandwidth: 1e9, Latency: time.Microsecond}})
		}
	}
	hosts[9].Err = errors.New("host compute-node-9: ssh has failed")
	var whole strings.Builder
	if _, err := Report(&whole, hosts, nil, Variables{}, 0); err != nil {
		t.Fatal(err)
	}
	for _, columns := range []int{80, 120} {
		var b strings.Builder
		if _, err := Report(&b, hosts, pairs, Variables{}, columns); err != nil || widest(b.String()) > columns {
			t.Errorf("%d columns of %d, %v\n%s", widest(b.String()), columns, err, &b)
		}
		if !strings.Contains(b.String(), "pairs were measured") {
			t.Errorf("a matrix that is too wide:\n%s", &b)
		}
		b.Reset()
		if _, err := Report(&b, hosts, nil, Variables{}, columns); err != nil || !slices.Equal(
			strings.Fields(b.String()), strings.Fields(whole.String())) {
			t.Errorf("%v, and words differ:\n%s", err, &b)
		}
	}
	for _, want := range []string{"compute-node-8, compute-node-9 (see below)\n", "\nCORES       4\n",
		"\n            eth0 10.0.0.8, eth0 fd00::8 on compute-node-8\n"} {
		if !strings.Contains(whole.String(), want) {
			t.Errorf("no %q in\n%s", want, &whole)
		}
	}
}

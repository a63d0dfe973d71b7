package world

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/test/netns"
)

// These tests run ranks as processes in two network namespaces: the test binary starts
// itself with netnsRole and HOROVOD_* as a user would set them.
const netnsRole = "WORLD_TEST_NETNS"

// process is a rank or the rendezvous. Its stdout is read line by line.
type process struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr bytes.Buffer
}

// startIn starts this test's own binary on a host, in a role.
func startIn(t testing.TB, h netns.Host, role string, env ...string) *process {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	p := &process{Cmd: h.Command(t.Context(), os.Args[0], "-test.run=^"+name+"$", "-test.bench=^"+name+"$",
		"-test.timeout=5m")}
	p.Env = append(append(os.Environ(), netnsRole+"="+role), env...)
	p.Stderr = &p.stderr
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // also for a process that never answers, when Fatal comes before Wait
		p.Process.Kill()
		p.Wait()
	})
	return p
}

// line is the process's next line that begins with tag, without the tag.
func (p *process) line(tag string) (string, error) {
	for p.out.Scan() {
		if rest, ok := strings.CutPrefix(p.out.Text(), tag+" "); ok {
			return rest, nil
		}
	}
	return "", fmt.Errorf("it has ended without a %q: %s", tag, p.stderr.String())
}

// startRanks starts a rendezvous on the first host, and `local` ranks on each, with env besides the variables that tell
// them their places.
func startRanks(t testing.TB, hosts [2]netns.Host, role string, local int, env ...string) []*process {
	t.Helper()
	size := strconv.Itoa(2 * local)
	port, err := startIn(t, hosts[0], "rendezvous", "HOROVOD_SIZE="+size).line("port")
	if err != nil {
		t.Fatal(err)
	}
	ranks := make([]*process, 2*local)
	for r := range ranks {
		base := []string{"HOROVOD_RANK=" + strconv.Itoa(r), "HOROVOD_SIZE=" + size,
			"HOROVOD_LOCAL_RANK=" + strconv.Itoa(r%local), "HOROVOD_LOCAL_SIZE=" + strconv.Itoa(local),
			"HOROVOD_CROSS_RANK=" + strconv.Itoa(r/local), "HOROVOD_CROSS_SIZE=2",
			"HOROVOD_GLOO_RENDEZVOUS_ADDR=" + hosts[0].Address, "HOROVOD_GLOO_RENDEZVOUS_PORT=" + port,
			"HOROVOD_SECRET_KEY=" + hex.EncodeToString(key)}
		if r%2 == 0 { // the others find it out by themselves
			base = append(base, "HOROVOD_GLOO_IFACE="+netns.Interface)
		}
		ranks[r] = startIn(t, hosts[r/local], role, append(base, env...)...)
	}
	return ranks
}

// asRole plays a role, if this process has been started for one.
func asRole(t testing.TB, rank func(w *World)) (played bool) {
	switch os.Getenv(netnsRole) {
	case "":
		return false
	case "rendezvous":
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("port", l.Addr().(*net.TCPAddr).Port)
		size, err := strconv.Atoi(os.Getenv("HOROVOD_SIZE"))
		if err != nil {
			t.Fatal(err)
		}
		s := rendezvous.NewServer(key, size)
		go s.Serve(l)
		io.Copy(io.Discard, os.Stdin)
		s.Close()
		return true
	}
	c, err := config.Load(os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	c.Timeout, c.Heartbeat = min(c.Timeout, 20*time.Second), 3*time.Second
	w, err := join(context.Background(), c, 1, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Leave(limit)
	if w.Place.LocalSize > 1 && w.Engine.Network() != "shm+tcp" {
		t.Fatalf("rank %d: the network is %s", w.Place.Rank, w.Engine.Network())
	}
	rank(w)
	return true
}

// Every operation works between two hosts that share only a wire, though they have one name. Then a rank is killed, and
// the others on both hosts hear of it.
func TestTwoNamespaces(t *testing.T) {
	if asRole(t, func(w *World) {
		tried, failed := runContract(t, w)
		fmt.Println("tried", tried, failed)
		io.Copy(io.Discard, os.Stdin) // the test kills the victim here
		_, err := add(w, "the last", 1)
		fmt.Println("told", err)
	}) {
		return
	}
	if raceDetector {
		t.Skip("its ranks are other processes, which the contract tests cover")
	}
	if testing.Short() {
		t.Skip("the contract over a slow link takes its time")
	}
	const victim = 3
	hosts := netns.Two(t, "1gbit")
	ranks := startRanks(t, hosts, "rank", 2)
	for r, p := range ranks {
		text, err := p.line("tried")
		var tried, failed int
		fmt.Sscan(text, &tried, &failed)
		if err != nil || failed > 0 || tried < 500 {
			t.Fatalf("rank %d: %d tried, %d failed: %v\n%s", r, tried, failed, err, p.stderr.String())
		}
	}
	ranks[victim].Process.Signal(syscall.SIGKILL)
	killed := time.Now()
	var telling sync.WaitGroup
	for r, p := range ranks[:victim] {
		telling.Go(func() {
			p.in.Close()
			if text, err := p.line("told"); err != nil || !strings.Contains(text, fmt.Sprintf("rank %d", victim)) {
				t.Errorf("rank %d was told %q: %v", r, text, err)
			}
		})
	}
	telling.Wait()
	t.Logf("all were told %v after the death", time.Since(killed).Round(time.Millisecond))
}

// runContract runs this rank's part of the contract's operations on two types.
func runContract(t *testing.T, w *World) (tried, failed int) {
	rank, n := w.Place.Rank, w.Place.Size
	all := &worlds{t: t, transport: "namespaces", ws: make([]*World, n), here: []int{rank}}
	all.ws[rank] = w
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		for _, row := range rows {
			steps := row.steps(dt, n)
			for _, together := range []bool{false, true} {
				for _, a := range all.submit(rank, row.name, steps, together) {
					tried++
					if err := a.judge(rank); err != nil {
						failed++
						fmt.Fprintf(os.Stderr, "%s: %v: %v\n", row.name, a.trial, err)
					}
				}
			}
		}
	}
	return tried, failed
}

// BenchmarkTwoNamespaces measures a large allreduce over a wire of 1 Gbit/s, and the share of that rate that it uses,
// for 2(H-1)/H·N bytes of each host.
func BenchmarkTwoNamespaces(b *testing.B) {
	const rounds, size = 5, 64 << 20
	if asRole(b, func(w *World) {
		data := make([]byte, size)
		for i := range rounds + 1 {
			took := sumInPlace(b, w, "gradient", data)
			if i > 0 { // the first has made the connections
				fmt.Println("took", took.Nanoseconds())
			}
		}
	}) {
		return
	}
	for _, c := range []struct {
		local       int
		streams     string
		compression string
		tls         string
	}{{2, "1", "none", "0"}, {2, "1", "bf16", "0"}, {2, "1", "int8", "0"}, {2, "2", "none", "0"}, {2, "1", "none", "1"},
		{1, "1", "none", "0"}, {1, "2", "none", "0"}, {1, "4", "none", "0"}, {1, "1", "none", "1"}} {
		b.Run(fmt.Sprintf("hosts=2/ranks=%d/streams=%s/%s/tls=%s", 2*c.local, c.streams, c.compression, c.tls),
			func(b *testing.B) {
				hosts := netns.Two(b, "1gbit")
				for b.Loop() {
					ranks := startRanks(b, hosts, "rank", c.local, "GOROVOD_TCP_STREAMS="+c.streams,
						"GOROVOD_COMPRESSION="+c.compression, "GOROVOD_TLS="+c.tls)
					took := slowest(b, ranks, rounds)
					median := took[rounds/2]
					bound := time.Duration(float64(size) * 8 / 1e9 * float64(time.Second))
					b.ReportMetric(float64(median.Milliseconds()), "ms/64MiB")
					b.ReportMetric(100*bound.Seconds()/median.Seconds(), "%-of-bound")
					b.ReportMetric(100*bound.Seconds()/took[rounds-1].Seconds(), "%-of-bound-at-worst")
				}
			})
	}
}

// sumInPlace sums data, float32, on all ranks, and returns how long that took.
func sumInPlace(t testing.TB, w *World, name string, data []byte) time.Duration {
	began := time.Now()
	e, err := w.Engine.Enqueue(&engine.Op{Type: operation.Allreduce, DType: tensor.Float32, ReduceOp: tensor.Sum,
		Name: name, Shape: tensor.Shape{int64(len(data) / 4)}, Prescale: 1, Postscale: 1, In: data, Out: data,
		WillWait: true})
	if err != nil {
		t.Fatal(err)
	}
	if !e.Wait(limit) || e.Err() != nil {
		t.Fatal(e.Err())
	}
	e.Release()
	return time.Since(began)
}

// slowest reads the times that the ranks' rounds took, and returns the longest of each round, sorted.
func slowest(t testing.TB, ranks []*process, rounds int) []time.Duration {
	took := make([]time.Duration, rounds)
	for i := range took {
		for _, p := range ranks {
			text, err := p.line("took")
			if err != nil {
				t.Fatal(err)
			}
			ns, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			took[i] = max(took[i], time.Duration(ns))
		}
	}
	slices.Sort(took)
	return took
}

// BenchmarkForms measures allreduces of several lengths over a wire of 1 Gbit/s, between two hosts with
// two ranks each: as the model chooses, and with each form that HOROVOD_HIERARCHICAL_ALLREDUCE can ask for.
func BenchmarkForms(b *testing.B) {
	lengths := []int{4, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20}
	const rounds = 11
	if asRole(b, func(w *World) {
		for _, n := range lengths {
			data := make([]byte, n)
			for range rounds {
				fmt.Println("took", sumInPlace(b, w, fmt.Sprint(n), data).Nanoseconds())
			}
		}
	}) {
		return
	}
	hosts := netns.Two(b, "1gbit")
	for _, hint := range []string{"auto", "0", "1"} {
		b.Run("hierarchical="+hint, func(b *testing.B) {
			for b.Loop() {
				ranks := startRanks(b, hosts, "rank", 2, "HOROVOD_HIERARCHICAL_ALLREDUCE="+hint)
				for _, n := range lengths {
					took := slowest(b, ranks, rounds)
					b.ReportMetric(float64(took[rounds/2].Microseconds()), fmt.Sprintf("µs/%dB", n))
				}
			}
		})
	}
}

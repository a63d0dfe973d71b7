package meet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/environment"
)

// processManager answers like Hydra's proxies. Each rank has a socket; fd is its end.
type processManager struct {
	mu      sync.Mutex
	values  map[string]string
	waiting int
	size    int
	passed  chan struct{}
	said    []string
	names   map[string]string // the names in its name service
	owed    map[net.Conn]int  // the number of answers under way
	early   bool              // a rank has sent its last word before they had come
	mapping string
	without string // the commands that it does not know, and refuses
	deaf    string // the commands that it does not answer
}

func startProcessManager(t *testing.T, size int) (m *processManager, fds []string) {
	m = &processManager{values: map[string]string{}, names: map[string]string{}, owed: map[net.Conn]int{}, size: size,
		passed: make(chan struct{})}
	for range size {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(pair[0]) })
		f := os.NewFile(uintptr(pair[1]), "")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		go m.serve(conn)
		fds = append(fds, fmt.Sprint(pair[0]))
	}
	return m, fds
}

func (m *processManager) serve(conn net.Conn) {
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		fields := map[string]string{}
		for _, f := range strings.Fields(lines.Text()) {
			name, value, _ := strings.Cut(f, "=")
			fields[name] = value
		}
		m.mu.Lock()
		m.said = append(m.said, fields["cmd"])
		answer := m.answer(fields, conn)
		m.mu.Unlock()
		if answer != "" {
			fmt.Fprintf(conn, "cmd=%s\n", answer)
		}
	}
}

// answer returns the immediate answer to a command.
func (m *processManager) answer(fields map[string]string, conn net.Conn) string {
	cmd := fields["cmd"]
	switch {
	case strings.Contains(m.deaf, cmd):
		return ""
	case strings.Contains(m.without, cmd):
		kind, _, _ := strings.Cut(cmd, "_")
		return kind + "_result rc=-1 info=not_implemented"
	}
	switch cmd {
	case "init":
		return "response_to_init pmi_version=1 pmi_subversion=1 rc=0"
	case "get_maxes":
		return "maxes kvsname_max=256 keylen_max=64 vallen_max=1024"
	case "get_my_kvsname":
		return "my_kvsname kvsname=kvs_1"
	case "put":
		m.values[fields["key"]] = fields["value"]
		return "put_result rc=0 msg=success"
	case "barrier_in":
		if m.waiting++; m.waiting == m.size {
			close(m.passed)
		}
		go func() {
			<-m.passed
			fmt.Fprint(conn, "cmd=barrier_out\n")
		}()
		return ""
	case "get":
		if fields["key"] == "PMI_process_mapping" && m.mapping != "" {
			return "get_result rc=0 msg=success value=" + m.mapping
		}
		if v, there := m.values[fields["key"]]; there {
			return "get_result rc=0 msg=success value=" + v
		}
		return "get_result rc=-1 msg=key_not_found"
	case "publish_name":
		m.names[fields["service"]] = fields["port"]
		m.later(conn, "publish_result info=ok rc=0 msg=success")
	case "lookup_name":
		if port, there := m.names[fields["service"]]; there {
			return "lookup_result port=" + port + " info=ok rc=0 msg=success"
		}
		return "lookup_result rc=1 msg=service_not_found"
	case "unpublish_name":
		delete(m.names, fields["service"])
		m.later(conn, "unpublish_result info=ok rc=0 msg=success")
	case "finalize":
		if m.owed[conn] > 0 {
			m.early = true
		}
		return "finalize_ack"
	}
	return ""
}

// later answers after some time, as a proxy does when it passes on an answer of the name service. m.mu is held.
func (m *processManager) later(conn net.Conn, answer string) {
	m.owed[conn]++
	time.AfterFunc(20*time.Millisecond, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.owed[conn]--
		fmt.Fprintf(conn, "cmd=%s\n", answer)
	})
}

// place is the place of a rank among size ranks, one on each host.
func place(rank, size int, fd string) environment.Place {
	return environment.Place{Launcher: environment.Hydra, Rank: rank, Size: size, PMI: fd}
}

func TestPMI(t *testing.T) {
	m, fds := startProcessManager(t, 3)
	want := Offer{Key: []byte("0123456789abcdef0123456789abcdef")}
	for i := range 60 { // more than fit
		want.Addrs = append(want.Addrs, fmt.Sprintf("192.0.2.%d:4711", i))
	}
	var ranks sync.WaitGroup
	for r, fd := range fds {
		b, err := newPMI(place(r, 3, fd), "h")
		if err != nil {
			t.Fatal(err)
		}
		ranks.Go(func() {
			if r == 0 {
				if _, err := b.Publish(bounded(t), want); err != nil {
					t.Error(err)
				}
				return
			}
			got, err := b.Read(bounded(t), nil)
			if err != nil || string(got.Key) != string(want.Key) || len(got.Addrs) < 10 ||
				got.Addrs[0] != want.Addrs[0] {
				t.Errorf("rank %d: %v, %v", r, got, err)
			}
			if _, err := b.Read(bounded(t), &got); err == nil {
				t.Error("a second reading")
			}
		})
	}
	ranks.Wait()
	if all := strings.Join(m.said, " "); strings.Count(all, "finalize") != 3 {
		t.Errorf("not everybody has said the last word: %s", all)
	}
	if all := strings.Join(m.said, " "); strings.Contains(all, " publish_name") && !strings.Contains(all, "unpublish") {
		t.Errorf("somebody has left a sign for good: %s", all)
	}
}

func TestPMIThatGoesWrong(t *testing.T) {
	t.Parallel()
	_, fds := startProcessManager(t, 2)
	b, _ := newPMI(place(1, 2, fds[1]), "h")
	if _, err := b.Read(short(t), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("rank 0 has not come: %v", err)
	}
	if _, err := newPMI(place(0, 2, "x"), "h"); err == nil {
		t.Error("PMI_FD=x")
	}
	b, _ = newPMI(place(1, 2, "987654"), "h")
	if _, err := b.Read(short(t), nil); err == nil {
		t.Error("a descriptor that is not there")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	unix.Write(pair[1], []byte("cmd=response_to_init rc=-1\n"))
	b, _ = newPMI(place(0, 2, fmt.Sprint(pair[0])), "h")
	if _, err := b.Publish(bounded(t), Offer{Key: []byte("k")}); err == nil || !strings.Contains(err.Error(), "rc=-1") {
		t.Errorf("refused: %v", err)
	}
	unix.Close(pair[1])
	if _, err := b.Read(bounded(t), nil); err == nil {
		t.Error("the process manager is gone")
	}
}

// The others wait for a rank that comes late, and leave no sign behind, with or without a name service.
func TestPMIWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ without, deaf string }{
		"a name service": {}, "none": {without: "publish_name unpublish_name"},
		"no answer": {deaf: "publish_name unpublish_name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, fds := startProcessManager(t, 2)
			m.without, m.deaf = c.without, c.deaf
			var late sync.WaitGroup
			late.Go(func() {
				for waiting := false; !waiting; time.Sleep(time.Millisecond) {
					m.mu.Lock()
					waiting = slices.Contains(m.said, "publish_name")
					m.mu.Unlock()
				}
				b, _ := newPMI(place(0, 2, fds[0]), "h")
				if _, err := b.Publish(bounded(t), Offer{Key: []byte("k")}); err != nil {
					t.Error(err)
				}
			})
			b, _ := newPMI(place(1, 2, fds[1]), "h")
			if o, err := b.Read(bounded(t), nil); err != nil || string(o.Key) != "k" {
				t.Errorf("%v, %v", o, err)
			}
			late.Wait()
			if len(m.names) > 0 {
				t.Errorf("there is left %v", m.names)
			}
			if m.early {
				t.Error("somebody has gone before all was answered")
			}
		})
	}
}

// When the time is over, the error names the ranks that have not come, and their hosts.
func TestPMINamesTheMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		come    string // the hosts of the ranks; - for ranks that do not come
		mapping string
		nodes   string
		without string
		deaf    string
		want    string
	}{
		"one": {"a a b -", "(vector,(0,2,2))", "", "", "",
			" for rank 3 of 4 (not heard of, started on host b); ranks 0, 1, 2 are there (do all call hvd.init()?): " +
				"context deadline exceeded"},
		"rank 0": {"- a b b", "(vector,(0,2,2))", "", "", "",
			" for rank 0 of 4 (not heard of, started on host a); ranks 1, 2, 3 are there"},
		"a host": {"a a - -", "(vector,(0,2,2))", "", "", "",
			" for rank 2 of 4 (not heard of, started on host number 2 of 2), rank 3 of 4 (not heard of, started on " +
				"host number 2 of 2); ranks 0, 1 are there"},
		"a host of Slurm's": {"a a - -", "(vector,(0,2,2))", "a b", "", "",
			" for rank 2 of 4 (not heard of, started on host b), rank 3 of 4 (not heard of, started on host b); " +
				"ranks 0, 1 are there"},
		"round and round": {"a b - b", "(vector,(0,2,1))", "", "", "",
			" for rank 2 of 4 (not heard of, started on host a); ranks 0, 1, 3 are there"},
		"no mapping": {"a a - b", "", "a b", "", "", " for rank 2 of 4 (not heard of); ranks 0, 1, 3 are " +
			"there: 0, 1 on host a; 3 on host b"},
		"no name service": {"a a - -", "(vector,(0,2,2))", "a b", "lookup_name publish_name", "",
			" for some of 4 ranks, and PMI does not tell for which: 0, 1 on host a; 2, 3 on host b (do all"},
		"no signs are taken": {"a a - -", "(vector,(0,2,2))", "", "publish_name", "",
			" for some of 4 ranks, and PMI does not tell for which: 0, 1 on host number 1 of 2; 2, 3 on host number " +
				"2 of 2 (do all"},
		"no answer any more": {"a -", "(vector,(0,2,1))", "", "", "lookup_name",
			" for some of 2 ranks, and PMI does not tell for which: 0 on host number 1 of 2; 1 on host number 2 " +
				"of 2 (do all"},
		"odd letters in name": {"a= -", "(vector,(0,1,2))", "", "", "", " for rank 1 of 2 (not heard of, started on " +
			"host a=); rank 0 is there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts := strings.Fields(c.come)
			m, fds := startProcessManager(t, len(hosts))
			m.mapping, m.without, m.deaf = c.mapping, c.without, c.deaf
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			var ranks sync.WaitGroup
			for r, host := range hosts {
				if host == "-" {
					continue
				}
				at := place(r, len(hosts), fds[r])
				at.Nodes = strings.Fields(c.nodes)
				b, _ := newPMI(at, host)
				ranks.Go(func() {
					var err error
					if r == 0 {
						_, err = b.Publish(ctx, Offer{})
					} else {
						_, err = b.Read(ctx, nil)
					}
					if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.want) {
						t.Errorf("rank %d: %v\nwant %s", r, err, c.want)
					}
				})
			}
			ranks.Wait()
			if late, _ := ctx.Deadline(); time.Since(late) > 5*time.Second {
				t.Errorf("it was told %v after the time-out", time.Since(late))
			}
		})
	}
}

// over is a context that ends, as if by its deadline, when the channel is closed.
type over struct {
	context.Context
	channel chan struct{}
}

func (o over) Done() <-chan struct{} { return o.channel }

func (o over) Err() error {
	select {
	case <-o.channel:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// heard returns how often a command has come.
func (m *processManager) heard(command string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, said := range m.said {
		if said == command {
			n++
		}
	}
	return n
}

// In a large job one rank looks for all signs: n ranks do not ask n×n questions.
func TestPMIOfManyNamesTheMissing(t *testing.T) {
	t.Parallel()
	const size = 99
	for name, c := range map[string]struct {
		away []int
		want string
	}{
		"one":    {[]int{98}, "rank 98 of 99 (not heard of, started on host h2); ranks 0-97 are there"},
		"rank 0": {[]int{0}, "rank 0 of 99 (not heard of, started on host h0); ranks 1-98 are there"},
		"several": {[]int{0, 1, 50}, "rank 0 of 99 (not heard of, started on host h0), rank 1 of 99 (not heard of, " +
			"started on host h0), " +
			"rank 50 of 99 (not heard of, started on host h1); ranks 2-49, 51-98 are there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, fds := startProcessManager(t, size)
			m.mapping = "(vector,(0,3,33))"
			ctx := over{t.Context(), make(chan struct{})}
			var ranks sync.WaitGroup
			for r := range size {
				if slices.Contains(c.away, r) {
					continue
				}
				b, _ := newPMI(place(r, size, fds[r]), fmt.Sprint("h", r/33))
				b.rollLimit = time.Minute
				ranks.Go(func() {
					if _, err := b.Read(ctx, nil); err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("rank %d: %v\nwant %s", r, err, c.want)
					}
				})
			}
			for m.heard("publish_name") < size-len(c.away) { // signs
				time.Sleep(10 * time.Millisecond)
			}
			close(ctx.channel)
			ranks.Wait()
			if asked := m.heard("lookup_name"); asked > 60*size {
				t.Errorf("%d questions of %d ranks", asked, size)
			}
		})
	}
}

// A rank that comes just before the time of the others is over counts as present.
func TestPMISeesWhoHasJustCome(t *testing.T) {
	t.Parallel()
	m, fds := startProcessManager(t, 3)
	m.mapping = "(vector,(0,3,1))"
	var late sync.WaitGroup
	defer late.Wait()
	late.Go(func() {
		time.Sleep(100 * time.Millisecond)
		b, _ := newPMI(place(1, 3, fds[1]), "b")
		ctx, cancel := context.WithTimeout(t.Context(), 3*pmiPatience)
		defer cancel()
		b.Read(ctx, nil)
	})
	b, _ := newPMI(place(0, 3, fds[0]), "a")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.Publish(ctx, Offer{}); err == nil || !strings.Contains(err.Error(), "ranks 0, 1 are there") {
		t.Error(err)
	}
}

// A rank that is interrupted asks nothing.
func TestPMIInterrupted(t *testing.T) {
	t.Parallel()
	m, fds := startProcessManager(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	b, _ := newPMI(place(0, 2, fds[0]), "a")
	if _, err := b.Publish(ctx, Offer{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := strings.Join(m.said, " "); strings.Contains(all, "publish_name") || strings.Contains(all, "lookup") {
		t.Error(all)
	}
}

func TestProcessMapping(t *testing.T) {
	for _, c := range []struct {
		text        string
		size, local int
		want        []int
	}{
		{"(vector,(0,2,2))", 4, 2, []int{0, 0, 1, 1}},
		{"(vector,(0,2,2))", 3, 2, []int{0, 0, 1}},
		{"(vector,(0,2,1))", 5, 0, []int{0, 1, 0, 1, 0}},
		{"(vector,(0,1,3),(1,1,1))", 6, 0, []int{0, 0, 0, 1, 0, 0}},
		{"(vector,(0,4,1))", 4, 2, nil}, // Slurm, if the user has laid out the ranks
		{"(vector,(0,0,1))", 2, 0, nil},
		{"(vector,(0,9999999,9999999))", 2, 2, []int{0, 0}},
		{"(vector)", 2, 0, nil},
		{"(vector,(0,1,x))", 2, 0, nil},
		{"", 2, 0, nil},
	} {
		if got := processMapping(c.text, environment.Place{Size: c.size, LocalSize: c.local}); !slices.Equal(
			got, c.want) {
			t.Errorf("%s of %d: %v, want %v", c.text, c.size, got, c.want)
		}
	}
}

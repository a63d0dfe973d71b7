package meet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/schedulers"
)

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestChoose(t *testing.T) {
	dir := t.TempDir()
	local, home := filepath.Join(dir, "local"), filepath.Join(dir, "home")
	os.Mkdir(home, 0o755)
	key := []byte("secret")
	one := schedulers.Place{Launcher: schedulers.OpenMPI, Size: 2, LocalSize: 2, Job: "j"}
	two := schedulers.Place{Launcher: schedulers.Srun, Size: 2, LocalSize: 1, Job: "j", Head: "node0"}
	pmix := schedulers.Place{Launcher: schedulers.OpenMPI, Size: 2, LocalSize: 1, Job: "j", PMIx: "j"}
	works := func() (KeyValues, error) { return newStore(2), nil }
	fails := func() (KeyValues, error) { return nil, errors.New("no libpmix") }
	nameless := schedulers.Place{Launcher: schedulers.Hydra, Size: 2, LocalSize: 2, PMI: "8"}
	for _, c := range []struct {
		name string
		Circumstances
		want string // of the board, or in the error
	}{
		{"the user tells all", Circumstances{Place: one, Key: key, Addrs: []string{"a:1"}}, "[a:1]"},
		{"an address without a secret", Circumstances{Place: one, Addrs: []string{"a:1"}}, "without HOROVOD_SECRET_KEY"},
		{"a shared directory", Circumstances{Place: two, Dir: dir, Home: home}, "the file " + dir + "/rendezvous-"},
		{"one host", Circumstances{Place: one, Local: local, Home: home}, "the file " + local + "/rendezvous-"},
		{"PMI", Circumstances{Place: nameless, Local: local, Home: home}, "PMI"},
		{"PMI in use", Circumstances{Place: nameless, MPI: true, Local: local, Home: home}, "its PMI is in use"},
		{"PMIx", Circumstances{Place: pmix, PMIx: works, Key: key, Local: local, Home: home}, "PMIx"},
		{"PMIx is not needed", Circumstances{Place: pmix, PMIx: fails, Dir: dir}, "the file " + dir + "/rendezvous-"},
		{"PMIx without a library", Circumstances{Place: pmix, PMIx: fails, Local: local, Home: home}, "the file " + home + "/.gorovod/rendezvous-"},
		{"no way, since there is no library", Circumstances{Place: pmix, PMIx: fails}, "no libpmix"},
		{"the launcher has no PMIx", Circumstances{Place: two, PMIx: works, Home: home}, "the file " + home + "/.gorovod/rendezvous-"},
		{"the secret alone", Circumstances{Place: two, Key: key, Home: home}, "node0:1"},
		{"the home directory", Circumstances{Place: two, Home: home}, "the file " + home + "/.gorovod/rendezvous-"},
		{"no way", Circumstances{Place: two}, "srun has started 2 ranks"},
		{"a directory for a job without a name", Circumstances{Place: schedulers.Place{Launcher: schedulers.Hydra, Size: 2}, Dir: dir}, "no name"},
		{"jsrun without a name", Circumstances{Place: schedulers.Place{Launcher: schedulers.Jsrun, Size: 2, LocalSize: 2}, Local: local}, "jsrun would do by itself, but has not set both LSB_JOBID and PMIX_NAMESPACE"},
		{"PMI without PMI", Circumstances{Place: schedulers.Place{Launcher: schedulers.Hydra, Size: 2, LocalSize: 2}, Local: local}, "has not set PMI_FD"},
		{"no directory", Circumstances{Place: two, Dir: filepath.Join(dir, "missing")}, "GOROVOD_RENDEZVOUS_DIR=" + filepath.Join(dir, "missing") + ", which is to be a directory that all hosts share: lstat"},
	} {
		b, err := Choose(c.Circumstances)
		got := fmt.Sprint(err)
		if err == nil {
			got = b.String()
		}
		if !strings.Contains(got, c.want) || strings.Contains(got, "secret ") && err == nil && c.name == "one host" {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// The ports of a job with a known secret cannot be told without it.
func TestConvention(t *testing.T) {
	a, b := conventional([]byte("one"), "h", "j"), conventional([]byte("two"), "h", "j")
	again := conventional([]byte("one"), "h", "j")
	if !reflect.DeepEqual(a, again) || reflect.DeepEqual(a.Addrs, b.Addrs) || len(a.Addrs) != 4 {
		t.Errorf("%v %v %v", a, again, b)
	}
	o, err := a.Read(bounded(t), nil)
	if err != nil || !reflect.DeepEqual(o.Addrs, a.Addrs) {
		t.Errorf("%v, %v", o, err)
	}
	if _, err := a.Read(short(t), &o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	board := func() *file {
		f, err := newFile(dir, "job")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if _, err := board().Read(short(t), nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "GOROVOD_RENDEZVOUS_DIR") {
		t.Errorf("nothing there: %v", err)
	}
	first, second := Offer{Addrs: []string{"a:1"}, Key: []byte("k1")}, Offer{Addrs: []string{"a:1"}, Key: []byte("k2")}
	early, err := board().Publish(bounded(t), first)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := board().Read(bounded(t), nil); err != nil || !got.equal(first) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := board().Read(short(t), &first); err == nil || !strings.Contains(err.Error(), "out of date") {
		t.Errorf("a stale offer: %v", err)
	}
	// Who waits beside a stale offer sees the fresh one.
	var reading sync.WaitGroup
	reading.Go(func() {
		if got, err := board().Read(bounded(t), &first); err != nil || !got.equal(second) {
			t.Errorf("%v, %v", got, err)
		}
	})
	late, err := board().Publish(bounded(t), second)
	if err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	early() // leaves what is not its own
	if _, err := board().Read(bounded(t), nil); err != nil {
		t.Error(err)
	}
	late()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", first, first, first, first); strings.Contains(text, "k1") {
		t.Errorf("the secret is shown: %s", text)
	}
}

// What somebody else could have written or read is not believed.
func TestFilesThatAreNotBelieved(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"others may read it":  func(t *testing.T, path string) { os.Chmod(path, 0o640) },
		"others may write it": func(t *testing.T, path string) { os.Chmod(path, 0o602) },
		"a link": func(t *testing.T, path string) {
			os.Rename(path, path+".real")
			os.Symlink(path+".real", path)
		},
		"a pipe":      func(t *testing.T, path string) { os.Remove(path); unix.Mkfifo(path, 0o600) },
		"a directory": func(t *testing.T, path string) { os.Remove(path); os.Mkdir(path, 0o700) },
		"not JSON":    func(t *testing.T, path string) { os.WriteFile(path, []byte("hello"), 0o600) },
		"endless":     func(t *testing.T, path string) { os.Truncate(path, 1<<30) },
		"another's": func(t *testing.T, path string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			os.Chown(path, 4711, 4711)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := newFile(t.TempDir(), "job")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Publish(bounded(t), Offer{Key: []byte("k")}); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(f.path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("written as %v, %v", info.Mode(), err)
			}
			spoil(t, f.path)
			if got, err := f.Read(bounded(t), nil); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestDirectoriesThatAreNotBelieved(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	os.Mkdir(open, 0o700)
	os.Chmod(open, 0o777)
	for _, board := range []func(dir, job string) (*file, error){newFile, newPrivateFile, newLocalFile} {
		if _, err := board(open, "j"); err == nil {
			t.Error("everybody may write there")
		}
	}
	os.Symlink(dir, filepath.Join(dir, "link"))
	if _, err := newPrivateFile(filepath.Join(dir, "link"), "j"); err == nil {
		t.Error("a link as this user's own directory")
	}
	if _, err := newPrivateFile(filepath.Join(dir, "new"), "j"); err != nil {
		t.Error(err)
	}
}

// processManager answers like Hydra's proxies. Each rank has a socket; fd is its end.
type processManager struct {
	mu      sync.Mutex
	values  map[string]string
	waiting int
	size    int
	passed  chan struct{}
	said    []string
}

func startProcessManager(t *testing.T, size int) (m *processManager, fds []string) {
	m = &processManager{values: map[string]string{}, size: size, passed: make(chan struct{})}
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
		m.mu.Unlock()
		answer := ""
		switch fields["cmd"] {
		case "init":
			answer = "response_to_init pmi_version=1 pmi_subversion=1 rc=0"
		case "get_maxes":
			answer = "maxes kvsname_max=256 keylen_max=64 vallen_max=1024"
		case "get_my_kvsname":
			answer = "my_kvsname kvsname=kvs_1"
		case "put":
			m.mu.Lock()
			m.values[fields["key"]] = fields["value"]
			m.mu.Unlock()
			answer = "put_result rc=0 msg=success"
		case "barrier_in":
			m.mu.Lock()
			if m.waiting++; m.waiting == m.size {
				close(m.passed)
			}
			m.mu.Unlock()
			<-m.passed
			answer = "barrier_out"
		case "get":
			m.mu.Lock()
			v, ok := m.values[fields["key"]]
			m.mu.Unlock()
			answer = "get_result rc=0 msg=success value=" + v
			if !ok {
				answer = "get_result rc=-1 msg=key_not_found"
			}
		case "finalize":
			answer = "finalize_ack"
		}
		fmt.Fprintf(conn, "cmd=%s\n", answer)
	}
}

func TestPMI(t *testing.T) {
	m, fds := startProcessManager(t, 3)
	want := Offer{Key: []byte("0123456789abcdef0123456789abcdef")}
	for i := range 60 { // more than there is room for
		want.Addrs = append(want.Addrs, fmt.Sprintf("192.0.2.%d:4711", i))
	}
	var ranks sync.WaitGroup
	for r, fd := range fds {
		b, err := newPMI(fd)
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
			if err != nil || string(got.Key) != string(want.Key) || len(got.Addrs) < 10 || got.Addrs[0] != want.Addrs[0] {
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
}

func TestPMIThatGoesWrong(t *testing.T) {
	_, fds := startProcessManager(t, 2)
	b, _ := newPMI(fds[1])
	if _, err := b.Read(short(t), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("rank 0 has not come: %v", err)
	}
	if _, err := newPMI("x"); err == nil {
		t.Error("PMI_FD=x")
	}
	b, _ = newPMI("987654")
	if _, err := b.Read(short(t), nil); err == nil {
		t.Error("a descriptor that is not there")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	unix.Write(pair[1], []byte("cmd=response_to_init rc=-1\n"))
	b, _ = newPMI(fmt.Sprint(pair[0]))
	if _, err := b.Publish(bounded(t), Offer{Key: []byte("k")}); err == nil || !strings.Contains(err.Error(), "rc=-1") {
		t.Errorf("refused: %v", err)
	}
	unix.Close(pair[1])
	if _, err := b.Read(bounded(t), nil); err == nil {
		t.Error("the process manager is gone")
	}
}

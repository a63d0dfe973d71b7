package meet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/environment"
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
	one := environment.Place{Launcher: environment.OpenMPI, Size: 2, LocalSize: 2, Job: "j"}
	two := environment.Place{Launcher: environment.Srun, Size: 2, LocalSize: 1, Job: "j", Head: "node0"}
	pmix := environment.Place{Launcher: environment.OpenMPI, Size: 2, LocalSize: 1, Job: "j", PMIx: "j"}
	works := func() (KeyValues, error) { return newStore(2), nil }
	fails := func() (KeyValues, error) { return nil, errors.New("no libpmix") }
	nameless := environment.Place{Launcher: environment.Hydra, Size: 2, LocalSize: 2, PMI: "8"}
	for _, c := range []struct {
		name string
		Circumstances
		want string // of the store, or in the error
	}{
		{"the user tells all", Circumstances{Place: one, Key: key, Addrs: []string{"a:1"}}, "[a:1]"},
		{"an address without a secret", Circumstances{Place: one, Addrs: []string{"a:1"}},
			"without HOROVOD_SECRET_KEY"},
		{"a shared directory", Circumstances{Place: two, Dir: dir, Home: home}, "the file " + dir + "/rendezvous-"},
		{"one host", Circumstances{Place: one, Local: local, Home: home}, "the file " + local + "/rendezvous-"},
		{"PMI", Circumstances{Place: nameless, Local: local, Home: home}, "PMI"},
		{"PMI in use", Circumstances{Place: nameless, MPI: true, Local: local, Home: home}, "its PMI is in use"},
		{"PMIx", Circumstances{Place: pmix, PMIx: works, Key: key, Local: local, Home: home}, "PMIx"},
		{"PMIx is not needed", Circumstances{Place: pmix, PMIx: fails, Dir: dir}, "the file " + dir + "/rendezvous-"},
		{"PMIx without a library", Circumstances{Place: pmix, PMIx: fails, Local: local, Home: home},
			"the file " + home + "/.gorovod/rendezvous-"},
		{"no way, since there is no library", Circumstances{Place: pmix, PMIx: fails}, "no libpmix"},
		{"the launcher has no PMIx", Circumstances{Place: two, PMIx: works, Home: home}, "the file " + home +
			"/.gorovod/rendezvous-"},
		{"the secret alone", Circumstances{Place: two, Key: key, Home: home}, "node0:1"},
		{"the home directory", Circumstances{Place: two, Home: home}, "the file " + home + "/.gorovod/rendezvous-"},
		{"no way", Circumstances{Place: two}, "srun has started 2 ranks"},
		{"a directory for a job without a name", Circumstances{Place: environment.Place{Launcher: environment.Hydra,
			Size: 2}, Dir: dir}, "no name"},
		{"jsrun without a name", Circumstances{Place: environment.Place{Launcher: environment.Jsrun, Size: 2,
			LocalSize: 2}, Local: local}, "jsrun would do by itself, but has not set both LSB_JOBID and " +
			"PMIX_NAMESPACE"},
		{"PMI without PMI", Circumstances{Place: environment.Place{Launcher: environment.Hydra, Size: 2, LocalSize: 2},
			Local: local}, "has not set PMI_FD"},
		{"no directory", Circumstances{Place: two, Dir: filepath.Join(dir, "missing")}, "GOROVOD_RENDEZVOUS_DIR=" +
			filepath.Join(dir, "missing") + " must be a directory that all hosts share: lstat"},
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

// Nobody can guess the ports of a job without its secret.
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
	store := func() *file {
		f, err := newFile(dir, "job")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if _, err := store().Read(short(t), nil); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "GOROVOD_RENDEZVOUS_DIR") {
		t.Errorf("nothing there: %v", err)
	}
	first, second := Offer{Addrs: []string{"a:1"}, Key: []byte("k1")}, Offer{Addrs: []string{"a:1"}, Key: []byte("k2")}
	early, err := store().Publish(bounded(t), first)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := store().Read(bounded(t), nil); err != nil || !got.equal(first) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := store().Read(short(t), &first); err == nil || !strings.Contains(err.Error(), "out of date") {
		t.Errorf("a stale offer: %v", err)
	}
	// A rank that waits beside a stale offer sees the fresh one.
	var reading sync.WaitGroup
	reading.Go(func() {
		if got, err := store().Read(bounded(t), &first); err != nil || !got.equal(second) {
			t.Errorf("%v, %v", got, err)
		}
	})
	late, err := store().Publish(bounded(t), second)
	if err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	early() // leaves a file that is not its own
	if _, err := store().Read(bounded(t), nil); err != nil {
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

// Read refuses files that somebody else could have written or read.
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
	for _, store := range []func(dir, job string) (*file, error){newFile, newPrivateFile, newLocalFile} {
		if _, err := store(open, "j"); err == nil {
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

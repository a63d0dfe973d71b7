package flags

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch/placement"
)

// A file that is no file of settings is refused in bounded time and space. The error has the file's name and the
// option, for every option that names a file.
func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	large, long := filepath.Join(dir, "large"), filepath.Join(dir, "long")
	for path, size := range map[string]int64{large: maxSettings + 1, long: maxSettings} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	for path, says := range map[string]string{
		"/dev/zero":                "more than 4 MiB",
		large:                      "more than 4 MiB",
		long:                       "", // one line that is no setting
		dir:                        "it is a directory",
		filepath.Join(dir, "none"): "no such file",
		"/dev/null":                "names no hosts",
	} {
		_, err := (&Flags{Hostfile: path}).HostList()
		if err == nil || !strings.HasPrefix(err.Error(), "--hostfile: "+path) && !strings.Contains(says,
			"no such file") || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), says) ||
			len(err.Error()) > 2000 {
			t.Errorf("--hostfile %s: %.300v", path, err)
		}
		_, err = Parse("horovodrun", []string{"-np", "1", "--config-file", path, "x"})
		if path == "/dev/null" {
			if err != nil {
				t.Errorf("an empty file of settings: %v", err)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), "--config-file: ") || !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), says) || len(err.Error()) > 2000 {
			t.Errorf("--config-file %s: %.300v", path, err)
		}
	}
}

// The launcher gives up a pipe into which nobody writes.
func TestPipesWithoutAnEnd(t *testing.T) {
	defer func(d time.Duration) { settingsPatience = d }(settingsPatience)
	settingsPatience = 50 * time.Millisecond
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { // releases a goroutine that waits at the pipe
		if f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	}()
	if _, err := (&Flags{Hostfile: pipe}).HostList(); err == nil || !strings.HasPrefix(err.Error(),
		"--hostfile: "+pipe+": it has not come to its end within 50ms: either nobody writes") {
		t.Error(err)
	}
}

// A pipe with a writer, as bash's <(command) makes it, is as good as a file.
func TestHostsThroughAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(pipe, []byte("a slots=2\nb slots=1\n"), 0)
	hosts, err := (&Flags{Hostfile: pipe}).HostList()
	if err != nil || !slices.Equal(hosts, []placement.Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 1}}) {
		t.Errorf("%v, %v", hosts, err)
	}
}

// An option with an empty value, for example from a variable that is not set, is refused: without its value the job
// would run elsewhere, or lose its output.
func TestEmptyValues(t *testing.T) {
	for _, option := range strings.Fields("-H --hosts --hostfile -hostfile --config-file --output-filename " +
		"--host-discovery-script -i --remote-command --network-interfaces --timeline-filename --autotune-log-file -x") {
		for _, args := range [][]string{{option, ""}, {option + "="}} {
			_, err := Parse("horovodrun", slices.Concat([]string{"-np", "2"}, args, []string{"x"}))
			if err == nil || !strings.Contains(err.Error(), "its value is empty") {
				t.Errorf("%q: %v", args, err)
			}
		}
	}
	if _, err := Parse("horovodrun", []string{"-np", "2", "--mpi", "--mpi-args=", "--binding-args", "",
		"x"}); err != nil {
		t.Errorf("no words for mpirun: %v", err)
	}
}

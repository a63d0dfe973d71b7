package metrics

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/output"
)

// asTorchrun is a script that starts two ranks as torchrun does, each of which runs the script's first argument.
const asTorchrun = `export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$PPID
RANK=1 LOCAL_RANK=1 "$0" & other=$!
RANK=0 LOCAL_RANK=0 "$0"; code=$?
wait $other && exit $code`

// withCommand is the environment of ranks that find the command gorovod, and more.
func withCommand(t *testing.T, more ...string) []string {
	return append(more, "PATH="+filepath.Dir(built(t, "gorovod"))+":"+os.Getenv("PATH"))
}

// observers are the processes that show the job of rank 0, which has this process id.
func observers(rankZero string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if bytes.Equal(text, []byte("gorovod\x00observe\x00"+rankZero+"\x00")) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// rankZero is the process id of rank 0.
func (j *job) rankZero(t *testing.T) string {
	t.Helper()
	return j.pid(t, ".pid")
}

// pid is the process id in a file of the ranks.
func (j *job) pid(t *testing.T, file string) string {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if text, err := os.ReadFile(j.stop + file); err == nil && len(text) > 0 {
			return string(text)
		}
	}
	t.Fatalf("a rank does not start: there is no %s", file)
	return ""
}

// awaitNoObserver waits until nothing shows the job any more.
func awaitNoObserver(t *testing.T, rankZero string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); len(observers(rankZero)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("rank 0 has ended, and its observers %v have not", observers(rankZero))
		}
	}
}

// TestRankZeroShowsTheJob reads the metrics of jobs that other launchers have started, while they train.
func TestRankZeroShowsTheJob(t *testing.T) {
	for name, line := range map[string][]string{
		"Open MPI": {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", os.Args[0]},
		"MPICH":    {"mpirun.mpich", "-n", "2", os.Args[0]},
		"torchrun": {"sh", "-c", asTorchrun, os.Args[0]},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(line[0]); err != nil {
				t.Skip(err)
			}
			j := startBy(t, withCommand(t, "GOROVOD_METRICS=0"), line...)
			j.await(t, "the figures of both ranks", "", func(page string) bool {
				return value(page, "reporting_ranks") == 2 && value(page, `workers{state="joined"}`) == 2 &&
					value(page, `collectives_total{dtype="float32",op="allreduce",process_set="0"}`) >= 30 &&
					value(page, `waited_for_seconds_total{rank="1"}`) > 0.1
			})
			if code, text := j.get("/readyz", ""); code != 200 {
				t.Errorf("/readyz: %d %s", code, text)
			}
			zero := j.rankZero(t)
			if found := observers(zero); len(found) != 1 {
				t.Errorf("observers of process %s: %v", zero, found)
			}
			j.end(t)
			awaitNoObserver(t, zero)
		})
	}
}

// TestRankZeroShowsTheJobOfHorovodrunMPI does the same with horovodrun --mpi, with each mpirun that is installed: its
// options reach rank 0, the token too.
func TestRankZeroShowsTheJobOfHorovodrunMPI(t *testing.T) {
	for _, m := range []struct {
		mpirun, args string
	}{{"mpirun.openmpi", "--mpi-args=--oversubscribe"}, {"mpirun.mpich", "--mpi-args="}} {
		t.Run(m.mpirun, func(t *testing.T) {
			path, err := exec.LookPath(m.mpirun)
			if err != nil {
				t.Skip(err)
			}
			dir := t.TempDir()
			script := "#!/bin/sh\nexec " + path + " \"$@\"\n" // MPICH's finds its other programs beside itself
			if err := os.WriteFile(filepath.Join(dir, "mpirun"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			const token = "a-token-of-this-test"
			file := filepath.Join(dir, "token")
			if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			paths := strings.Join([]string{dir, filepath.Dir(built(t, "gorovod")), os.Getenv("PATH")}, ":")
			env := []string{"PATH=" + paths, "GOROVOD_METRICS_TOKEN_FILE=" + file}
			j := startBy(t, env, built(t, "horovodrun"), "--mpi", "-np", "2", "--metrics-port=0.0.0.0:0", m.args,
				os.Args[0])
			j.url = strings.Replace(j.url, "[::]", "127.0.0.1", 1)
			if code, text := j.get("/metrics", ""); code != 401 {
				t.Errorf("without a token: %d %s", code, text)
			}
			j.await(t, "the figures of both ranks", token, func(page string) bool {
				return value(page, "reporting_ranks") == 2 && value(page, `wire_bytes_total{link="mpi"}`) > 0
			})
			zero := j.rankZero(t)
			j.end(t)
			awaitNoObserver(t, zero)
		})
	}
}

// TestTheObserverEndsWithRankZero kills rank 0.
func TestTheObserverEndsWithRankZero(t *testing.T) {
	j := startBy(t, withCommand(t, "GOROVOD_METRICS=0"), "sh", "-c", asTorchrun, os.Args[0])
	zero := j.rankZero(t)
	j.await(t, "the figures of both ranks", "", func(page string) bool { return value(page, "reporting_ranks") == 2 })
	pid, err := strconv.Atoi(zero)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitNoObserver(t, zero)
	if err := <-j.ended; err == nil {
		t.Errorf("rank 0 was killed, and the job has ended well\n%s", j.out)
	}
}

// TestRankZeroShowsADeath kills rank 1, while rank 0's process goes on, and then that, as a launcher may.
func TestRankZeroShowsADeath(t *testing.T) {
	j := startBy(t, withCommand(t, "GOROVOD_METRICS=0", "GOROVOD_DASHBOARD=0", staysVariable+"=1"), "sh", "-c",
		asTorchrun, os.Args[0])
	zero, one := j.rankZero(t), j.pid(t, ".pid1")
	j.await(t, "the figures of both ranks", "", func(page string) bool { return value(page, "reporting_ranks") == 2 })
	kill := func(text string) {
		if pid, err := strconv.Atoi(text); err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
			t.Fatalf("process %s cannot be killed", text)
		}
	}
	kill(one)
	says(t, false, []string{"top", "--once", zero}, "The operations have failed, ", " ago: rank 1 on host ",
		"(pid "+one+") ")
	events, err := http.Get(dashboardAddress.FindStringSubmatch(j.out.String())[1] + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	kill(zero)
	text, _ := io.ReadAll(events.Body)
	if _, end, _ := strings.Cut(string(text), "event: end"); !strings.Contains(end, "(pid "+one+") ") {
		t.Errorf("the page ends with %s", end)
	}
	if err := <-j.ended; err == nil {
		t.Errorf("rank 1 was killed, and the job has ended well\n%s", j.out)
	}
}

// TestAStoppedObserver: rank 0 goes on when its observer does not read, and the job ends well.
func TestAStoppedObserver(t *testing.T) {
	j := startBy(t, withCommand(t, "GOROVOD_METRICS=0"), "sh", "-c", asTorchrun, os.Args[0])
	zero := j.rankZero(t)
	j.await(t, "the figures of both ranks", "", func(page string) bool { return value(page, "reporting_ranks") == 2 })
	found := observers(zero)
	if len(found) != 1 {
		t.Fatalf("observers of process %s: %v", zero, found)
	}
	pid, _ := strconv.Atoi(found[0])
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if err := os.WriteFile(j.stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if state, err := os.ReadFile("/proc/" + zero + "/stat"); err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Error("rank 0 does not end while its observer is stopped")
			break
		}
	}
	syscall.Kill(pid, syscall.SIGCONT)
	if err := <-j.ended; err != nil {
		t.Errorf("%v\n%s", err, j.out)
	}
	awaitNoObserver(t, zero)
}

// TestNothingShowsTheJob: a job trains and ends well though rank 0 cannot show it, and says why. Without the variable
// there is no observer.
func TestNothingShowsTheJob(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	without := "PATH=/usr/bin:/bin"
	for name, c := range map[string]struct {
		env  []string
		want string // in the output; empty: nothing of an observer
	}{
		"the port is taken": {withCommand(t, fmt.Sprintf("GOROVOD_METRICS=%d", port)), fmt.Sprintf("nothing shows the "+
			"job: GOROVOD_METRICS %d: listen tcp4 127.0.0.1:%d: bind: address already in use", port, port)},
		"no token": {withCommand(t, "GOROVOD_METRICS=0.0.0.0:0"), "give a token in GOROVOD_METRICS_TOKEN_FILE"},
		"the command is missing": {[]string{without, "GOROVOD_METRICS=0"}, "GOROVOD_METRICS is set, but nothing " +
			"shows the job: the command gorovod is neither at one of"},
		"off": {withCommand(t), ""},
	} {
		t.Run(name, func(t *testing.T) {
			stop := filepath.Join(t.TempDir(), "stop")
			cmd := exec.Command("sh", "-c", asTorchrun, os.Args[0])
			cmd.Env = append(append(os.Environ(), rankVariable+"="+stop), c.env...)
			out := &output.Buffer{}
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			j := &job{stop: stop, out: out}
			zero := j.rankZero(t)
			out.Await(t, c.want, func(text string) bool { return strings.Contains(text, c.want) })
			awaitNoObserver(t, zero)
			if err := os.WriteFile(stop, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			text := out.String()
			if c.want == "" && text != "" || c.want != "" && strings.Count(text, "shows the job") != 1 {
				t.Errorf("%q, want %q once", text, c.want)
			}
		})
	}
}

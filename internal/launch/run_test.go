package launch

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/job"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// programVariable makes the test binary a program that a rank runs.
const programVariable = "GOROVOD_LAUNCH_TEST_PROGRAM"

// TestMain lets the test binary play all parts: under its own name it runs the tests, as horovodrun it is the launcher,
// which starts the binary again as supervisor.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case name == spawn.SupervisorName || name == "horovodrun" || name == "gorovod" || len(os.Args) == 2 &&
		os.Args[1] == "agent":
		job.TermGrace = 300 * time.Millisecond
		os.Exit(Main(os.Args))
	case os.Getenv(programVariable) != "":
		os.Exit(programs[os.Getenv(programVariable)]())
	}
	os.Exit(m.Run())
}

// joinHere joins the job's rendezvous.
func joinHere(ctx context.Context) (*rendezvous.Session, error) {
	rank, _ := strconv.Atoi(os.Getenv("HOROVOD_RANK"))
	size, _ := strconv.Atoi(os.Getenv("HOROVOD_SIZE"))
	key, _ := hex.DecodeString(os.Getenv(spawn.SecretVariable))
	addr := net.JoinHostPort(os.Getenv("HOROVOD_GLOO_RENDEZVOUS_ADDR"), os.Getenv("HOROVOD_GLOO_RENDEZVOUS_PORT"))
	return rendezvous.Join(ctx, []string{addr}, key,
		rendezvous.Options{Rank: rank, Size: size, Host: os.Getenv("HOROVOD_HOSTNAME"), PID: os.Getpid(),
			Generation: 1})
}

// programs are what ranks run if sh cannot do it.
var programs = map[string]func() int{
	// join joins the rendezvous and exchanges. Rank 1 exits first, as EXIT says: with a code, or killed.
	"join": func() int {
		if os.Getenv("HOROVOD_RANK") == "1" {
			switch how := os.Getenv("EXIT"); how {
			case "":
			case "kill":
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			default:
				code, _ := strconv.Atoi(how)
				return code
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		s, err := joinHere(ctx)
		if err == nil {
			_, err = s.Exchange(ctx, "join", []byte("hello"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			s.Report(err.Error())
			return 7
		}
		fmt.Println("joined")
		s.Close()
		return 0
	},
	// interrupted waits for SIGINT or SIGTERM and prints which one came.
	"interrupted": func() int {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ready")
		fmt.Println("got", <-c)
		return 0
	},
	// raises: rank 1 reports a failure, REPORT, and is the last to end; if GO is not set, it ends once DIR/go exists.
	"raises": func() int {
		dir, rank := os.Getenv("DIR"), os.Getenv("HOROVOD_RANK")
		wait := func(done func() bool) {
			for !done() {
				time.Sleep(time.Millisecond)
			}
		}
		exists := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
		note := func(name, text string) { // the file has its whole text from the moment it exists
			path := filepath.Join(dir, name)
			os.WriteFile(path+".new", []byte(text), 0o600)
			os.Rename(path+".new", path)
		}
		s, err := joinHere(context.Background())
		if err != nil {
			return 7
		}
		note("pid."+rank, fmt.Sprint(os.Getpid()))
		fmt.Println("ready")
		if wait(func() bool { return os.Getenv("GO") != "" || exists("go") }); rank != "1" {
			wait(func() bool { return exists("reported") })
			return 9
		}
		wait(func() bool { return exists("pid.0") && exists("pid.2") })
		s.Report("rank 1 raised an error" + os.Getenv("REPORT"))
		note("reported", "")
		for _, other := range []string{"0", "2"} {
			text, _ := os.ReadFile(filepath.Join(dir, "pid."+other))
			pid, _ := strconv.Atoi(string(text))
			wait(func() bool { return syscall.Kill(pid, 0) != nil })
		}
		return 3
	},
	// vanishes: rank 1 ends with code 0 and does not leave. The others hear of it; with VICTIMS, they have operations
	// that fail because of it. Rank 2 then ends with code 9.
	"vanishes": func() int {
		s, err := joinHere(context.Background())
		if err == nil {
			_, err = s.Exchange(context.Background(), "join", []byte("hello"))
		}
		if err != nil {
			return 7
		}
		if os.Getenv("HOROVOD_RANK") == "1" {
			return 0
		}
		heard := make(chan rendezvous.Death)
		s.OnDeath(func(d rendezvous.Death) { heard <- d })
		s.Agree(rendezvous.Verdict{Cause: (<-heard).String(), View: " [seen by somebody]"}, time.Minute)
		if os.Getenv("VICTIMS") != "" {
			s.ReportVictim(time.Minute)
		}
		if os.Getenv("HOROVOD_RANK") == "2" {
			return 9
		}
		s.Close()
		return 0
	},
	// lingers: rank 1 has left, and lives on, and so does rank 0. Rank 2 reports that, and ends with code 9.
	"lingers": func() int {
		s, err := joinHere(context.Background())
		if err == nil {
			_, err = s.Exchange(context.Background(), "join", []byte("hello"))
		}
		if err != nil {
			return 7
		}
		if os.Getenv("HOROVOD_RANK") == "2" {
			s.ReportOn(1, "rank 1 has shut down"+rendezvous.Unfinished)
			return 9
		}
		if os.Getenv("HOROVOD_RANK") == "1" {
			s.Close()
		}
		time.Sleep(time.Hour)
		return 0
	},
	// stubborn ignores the signals that it can ignore.
	"stubborn": func() int {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		fmt.Println("ready")
		time.Sleep(time.Hour)
		return 0
	},
}

// launcher is one horovodrun.
type launcher struct {
	*exec.Cmd
	t              testing.TB
	stdout, stderr bytes.Buffer
	mark           string // in the environment of every process of the job
}

// launched prepares horovodrun with the given arguments; env adds to its environment.
func launched(t testing.TB, env []string, args ...string) *launcher {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := &launcher{t: t, mark: "GOROVOD_LAUNCH_TEST_MARK=" + rand.Text()}
	l.Cmd = &exec.Cmd{Path: self, Args: append([]string{"horovodrun"}, args...), Env: append(os.Environ(), l.mark)}
	// The race detector would otherwise let every process sleep a second at its end.
	l.Env = append(append(l.Env, "GORACE=atexit_sleep_ms=0"), env...)
	l.Stdout, l.Stderr = &l.stdout, &l.stderr
	t.Cleanup(func() {
		if l.Process != nil {
			l.Process.Kill()
		}
		l.nobodyLeft()
	})
	return l
}

func program(name string, more ...string) []string {
	return append(more, programVariable+"="+name)
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// code runs it to its end.
func (l *launcher) code() int {
	l.t.Helper()
	if err := l.Start(); err != nil {
		l.t.Fatal(err)
	}
	stop := time.AfterFunc(2*time.Minute, func() { l.Process.Kill() })
	defer stop.Stop()
	if err := l.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		l.t.Fatal(err)
	}
	if l.ProcessState.Exited() {
		return l.ProcessState.ExitCode()
	}
	return -1
}

func (l *launcher) expect(code int, says ...string) {
	l.t.Helper()
	if got := l.code(); got != code {
		l.t.Errorf("exit code %d, want %d", got, code)
	}
	for _, text := range says {
		if !strings.Contains(l.stderr.String(), text) {
			l.t.Errorf("stderr does not say %q", text)
		}
	}
	if l.t.Failed() {
		l.t.Logf("stdout:\n%s\nstderr:\n%s", l.stdout.String(), l.stderr.String())
	}
}

// until starts it and returns when n lines of its stdout contain text.
func (l *launcher) until(text string, n int) *bufio.Scanner {
	l.t.Helper()
	l.Stdout = nil
	out, err := l.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.Start(); err != nil {
		l.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n > 0 && lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			n--
		}
	}
	if n > 0 {
		l.t.Fatalf("%d lines with %q did not come: %s", n, text, l.stderr.String())
	}
	return lines
}

// marked lists the processes of the job that live.
func (l *launcher) marked() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		if err != nil || !bytes.Contains(env, []byte(l.mark)) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		pids = append(pids, pid)
	}
	return pids
}

// nobodyLeft waits a bounded time for the last process of the job to go.
func (l *launcher) nobodyLeft() {
	l.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for {
		left := l.marked()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, p := range left {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
				l.t.Errorf("process %d is left: %q", p, line)
				syscall.Kill(p, syscall.SIGKILL)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestSuccess(t *testing.T) {
	for _, np := range []string{"1", "2", "16"} {
		l := launched(t, nil, "-np", np, "true")
		l.expect(0)
		if l.stdout.Len()+l.stderr.Len() > 0 {
			t.Errorf("it prints %s%s", &l.stdout, &l.stderr)
		}
	}
}

func TestMisspeltVariablesAreToldOnce(t *testing.T) {
	l := launched(t, []string{"HOROVOD_FUSION_TRESHOLD=1", "HOROVOD_OF_OTHERS=1"}, "-np", "2", "-x",
		"HOROVOD_TRANSPORT=tcp", "true")
	l.expect(0)
	const want = `horovodrun: "HOROVOD_FUSION_TRESHOLD" is no variable of gorovod or Horovod, and has no ` +
		"effect: did you mean HOROVOD_FUSION_THRESHOLD?\n" + `horovodrun: "HOROVOD_TRANSPORT" is no variable ` +
		"of gorovod or Horovod, and has no effect: did you mean GOROVOD_TRANSPORT?\n"
	if l.stderr.String() != want {
		t.Errorf("it says %s", &l.stderr)
	}
}

func TestEnvironment(t *testing.T) {
	l := launched(t, []string{"HOROVOD_SECRET_KEY=drivers", "OLDPWD=/x", "CUDA_VISIBLE_DEVICES=3", "HOROVOD_RANK=9",
		"KEPT=yes"}, "-np", "3", "-H", "localhost:2,127.0.0.1:2", "--cache-capacity", "5", "env")
	l.expect(0)
	envs := map[string]map[string]string{}
	for line := range strings.Lines(l.stdout.String()) {
		rank, e, ok := strings.Cut(strings.TrimSpace(line), "<stdout>:")
		if !ok {
			t.Fatalf("%q", line)
		}
		name, value, _ := strings.Cut(e, "=")
		if envs[rank] == nil {
			envs[rank] = map[string]string{}
		}
		if _, twice := envs[rank][name]; twice {
			t.Errorf("%s has %s twice", rank, name)
		}
		envs[rank][name] = value
	}
	for rank, want := range map[string]string{
		"[0]": "localhost 0 3 0 2 0 2", "[1]": "localhost 1 3 1 2 0 1", "[2]": "127.0.0.1 2 3 0 1 1 2",
	} {
		env := envs[rank]
		var got []string
		for _, name := range strings.Fields("HOSTNAME RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE") {
			got = append(got, env["HOROVOD_"+name])
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %s, want %s", rank, got, want)
		}
		for name, want := range map[string]string{
			"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo",
			"HOROVOD_GLOO_IFACE": "lo", "NCCL_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1",
			"HOROVOD_CACHE_CAPACITY": "5", "KEPT": "yes",
		} {
			if env[name] != want {
				t.Errorf("%s: %s=%s, want %s", rank, name, env[name], want)
			}
		}
		if port, err := strconv.Atoi(env["HOROVOD_GLOO_RENDEZVOUS_PORT"]); err != nil || port <= 0 {
			t.Errorf("%s: port %v", rank, err)
		}
		if key, err := hex.DecodeString(env[spawn.SecretVariable]); err != nil || len(key) != 32 ||
			env[spawn.SecretVariable] != envs["[0]"][spawn.SecretVariable] {
			t.Errorf("%s: the secret is not 256 bits that all share", rank)
		}
		for _, name := range []string{"OLDPWD", "CUDA_VISIBLE_DEVICES"} {
			if _, ok := env[name]; ok {
				t.Errorf("%s: %s is inherited", rank, name)
			}
		}
	}
}

func TestTheSecretIsInNoArgument(t *testing.T) {
	l := launched(t, nil, "-np", "2", "--verbose", "sh", "-c",
		`echo $HOROVOD_SECRET_KEY; tr '\0' ' ' </proc/$PPID/cmdline; ps -e -o args`)
	l.expect(0)
	secret, _, _ := strings.Cut(strings.TrimPrefix(l.stdout.String(), "[0]<stdout>:"), "\n")
	secret = secret[strings.LastIndex(secret, ":")+1:]
	if len(secret) != 64 {
		t.Fatalf("%q", secret)
	}
	if n := strings.Count(l.stdout.String(), secret); n != 2 || strings.Contains(l.stderr.String(), secret) {
		t.Errorf("the secret is seen %d times, 2 are the processes' own", n)
	}
}

func TestManyRanksWriteWholeLines(t *testing.T) {
	const np, lines = 4, 5000
	l := launched(t, nil, "-np", fmt.Sprint(np), "sh", "-c", fmt.Sprintf(
		`seq -f "line %%g of stdout, long enough to be torn apart" %d; seq -f "line %%g of stderr" %d >&2; printf end`,
		lines, lines))
	l.expect(0)
	for name, text := range map[string]string{"stdout": l.stdout.String(), "stderr": l.stderr.String()} {
		whole := regexp.MustCompile(`^\[([0-3])\]<` + name + `>:(?:line (\d+) of ` + name + `.*|end)$`)
		next := [np]int{1, 1, 1, 1}
		ends := 0
		for line := range strings.Lines(text) {
			m := whole.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if m == nil {
				t.Fatalf("%s: a torn line: %q", name, line)
			}
			r, _ := strconv.Atoi(m[1])
			if m[2] == "" {
				ends++
				continue
			}
			if m[2] != fmt.Sprint(next[r]) {
				t.Fatalf("%s: rank %d: line %s, want %d", name, r, m[2], next[r])
			}
			next[r]++
		}
		if want := map[string]int{"stdout": np, "stderr": 0}[name]; next != [np]int{lines + 1, lines + 1, lines + 1,
			lines + 1} || ends != want {
			t.Errorf("%s: %v, %d ends", name, next, ends)
		}
	}
}

// A slow reader of the launcher's output still gets all of it.
func TestSlowReadersLoseNothing(t *testing.T) {
	const size = 1 << 20
	l := launched(t, nil, "-np", "1", "sh", "-c", fmt.Sprintf("echo ready; yes | head -c %d", size))
	lines := l.until("ready", 1)
	time.Sleep(spawn.DrainLimit + 200*time.Millisecond)
	n := 0
	for lines.Scan() {
		n++
	}
	l.Wait()
	if n != size/2 {
		t.Errorf("%d lines of %d", n, size/2)
	}
}

func TestOutputFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out", "deep")
	launched(t, nil, "-np", "11", "--output-filename", dir, "sh", "-c", "echo out $HOROVOD_RANK; echo err >&2").expect(
		0, "[10]<stderr>:err")
	for file, want := range map[string]string{"rank.00/stdout": "out 0\n", "rank.10/stdout": "out 10\n",
		"rank.07/stderr": "err\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); string(got) != want {
			t.Errorf("%s: %q %v", file, got, err)
		}
	}
	dir = t.TempDir()
	launched(t, nil, "-np", "1", "--output-filename", dir, "echo", "one").expect(0)
	if got, err := os.ReadFile(dir + "/rank.0/stdout"); string(got) != "one\n" {
		t.Errorf("%q %v", got, err)
	}
	launched(t, nil, "-np", "2", "--output-filename", "/proc/nonsense", "echo", "one").expect(1,
		"horovodrun: --output-filename: ")
}

func TestFirstFailureIsNamedAndDecides(t *testing.T) {
	l := launched(t, nil, "-np", "3", "--grace-period", "0.1", "sh", "-c",
		`if [ $HOROVOD_RANK = 2 ]; then for i in 1 2 3 4 5 6 7 8 9 10 11; do echo trouble $i >&2; done; exit 42; fi; exec sleep 1000`)
	l.expect(42, "Process 2 exit with status code 42.",
		"horovodrun: root cause: rank 2 on host localhost (pid ", ") exited with code 42; its stderr is above, in "+
			"the lines of [2]<stderr>\n")
	if n := strings.Count(l.stderr.String(), "trouble 11\n"); n != 1 {
		t.Errorf("its last line is there %d times: %s", n, &l.stderr)
	}
}

// The message repeats the last lines of the process that failed if they have scrolled out of sight, or could not be
// written.
func TestLastLinesOutOfSight(t *testing.T) {
	for kind, program := range map[string]string{
		"a static job":   "-np 2",
		"an elastic job": "-np 2 --min-np 2 --reset-limit 0",
	} {
		l := launched(t, nil, append(strings.Fields(program), "--grace-period", "60", "sh", "-c",
			`[ ${GOROVOD_ELASTIC_WORKER:-$HOROVOD_RANK} = 1 ] || {
			until [ -e $0 ]; do sleep 0.01; done; sleep 0.2; seq 1 `+fmt.Sprint(output.Screenful+20)+` >&2; exit 1; }
			for i in 1 2 3 4 5 6 7 8 9 10 11; do echo trouble $i >&2; done; touch $0; exit 42`, filepath.Join(t.TempDir(), "failed"))...)
		l.expect(42, "; last lines of its stderr:\n  trouble 2\n", "\n  trouble 11\n")
		if strings.Contains(l.stderr.String(), "  trouble 1\n") {
			t.Errorf("%s: more than the last 10 lines", kind)
		}
	}
}

func TestSignalDeathIsNamed(t *testing.T) {
	for sig, text := range map[string]string{"KILL": "9 (SIGKILL)", "SEGV": "11 (SIGSEGV)"} {
		n, _ := strconv.Atoi(strings.Fields(text)[0])
		l := launched(t, nil, "-np", "2", "--grace-period", "0", "sh", "-c",
			`if [ $HOROVOD_RANK = 1 ]; then kill -`+sig+` $$; fi; exec sleep 1000`)
		l.expect(128+n, fmt.Sprintf("Process 1 exit with status code %d.", 128+n),
			"horovodrun: root cause: rank 1 on host localhost (pid ", ") was killed by signal "+text)
	}
}

func TestOneMayEndBeforeTheOthers(t *testing.T) {
	l := launched(t, nil, "-np", "2", "--grace-period", "0", "sh", "-c",
		`[ $HOROVOD_RANK = 0 ] || { sleep 0.3; echo still here; }`)
	l.expect(0)
	if l.stdout.String() != "[1]<stdout>:still here\n" {
		t.Errorf("%s", &l.stdout)
	}
}

func TestTheOthersHaveTheGraceToEnd(t *testing.T) {
	l := launched(t, nil, "-np", "2", "--grace-period", "20", "sh", "-c",
		`[ $HOROVOD_RANK = 0 ] && exit 3; sleep 0.3; echo cleaned up; exit 4`)
	l.expect(3, "The other processes have 20s to end by themselves.")
	if l.stdout.String() != "[1]<stdout>:cleaned up\n" {
		t.Errorf("%s", &l.stdout)
	}
}

func TestAfterTheGraceTheyAreTerminatedThenKilled(t *testing.T) {
	l := launched(t, program("stubborn"), "-np", "2", "--grace-period", "0.05", "sh", "-c",
		`[ $HOROVOD_RANK = 0 ] && exit 3; exec `+self())
	l.expect(3)
	l = launched(t, nil, "-np", "2", "--grace-period", "0.05", "sh", "-c",
		`[ $HOROVOD_RANK = 0 ] && { sleep 0.2; exit 3; }; trap 'echo asked; exit 0' TERM; while :; do sleep 0.01; done`)
	l.expect(3)
	if l.stdout.String() != "[1]<stdout>:asked\n" {
		t.Errorf("%s", &l.stdout)
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		l := launched(t, program("interrupted"), "-np", "2", self())
		lines := l.until("ready", 2)
		l.Process.Signal(sig)
		var got []string
		for lines.Scan() {
			got = append(got, lines.Text())
		}
		l.Wait()
		slices.Sort(got)
		if want := fmt.Sprintf("[0]<stdout>:got %v [1]<stdout>:got %v", sig, sig); strings.Join(got, " ") != want {
			t.Errorf("%v: %q", sig, got)
		}
		if code := l.ProcessState.ExitCode(); code != 128+int(sig) {
			t.Errorf("%v: exit code %d: %s", sig, code, &l.stderr)
		}
	}
}

func TestSecondInterruptKills(t *testing.T) {
	l := launched(t, program("stubborn"), "-np", "2", "--grace-period", "1000", self())
	l.until("ready", 2)
	l.Process.Signal(syscall.SIGINT)
	l.Process.Signal(syscall.SIGTERM) // a different signal, because the kernel may merge two equal ones
	l.Wait()
	if code := l.ProcessState.ExitCode(); code != 130 && code != 143 {
		t.Errorf("exit code %d: %s", code, &l.stderr)
	}
}

// tree is a rank with children, orphans, and a session of its own.
const tree = `sleep 1000 & (setsid sleep 1000 &) ; setsid sh -c 'sleep 1000 & trap "" TERM; echo ready; while :; do sleep 1; done' & wait`

func TestDeathOfTheLauncherLeavesNobody(t *testing.T) {
	l := launched(t, nil, "-np", "2", "bash", "-c", tree)
	l.until("ready", 2)
	if n := len(l.marked()); n < 13 {
		t.Fatalf("only %d processes are seen", n)
	}
	l.Process.Kill()
	l.Wait()
	l.nobodyLeft()
}

func TestInterruptLeavesNobody(t *testing.T) {
	l := launched(t, nil, "-np", "2", "--grace-period", "0", "bash", "-c", tree)
	l.until("ready", 2)
	l.Process.Signal(syscall.SIGINT)
	l.Wait()
	if left := l.marked(); len(left) > 0 {
		t.Errorf("%d processes outlive the launcher's end", len(left))
	}
}

func TestWhatARankLeavesBehindIsEnded(t *testing.T) {
	l := launched(t, nil, "-np", "2", "bash", "-c", `sleep 1000 & setsid sleep 1000 & exit 0`)
	l.expect(0)
	if left := l.marked(); len(left) > 0 {
		t.Errorf("%d processes outlive the launcher", len(left))
	}
}

func TestDeathOfASupervisor(t *testing.T) {
	l := launched(t, nil, "-np", "2", "--grace-period", "0", "sh", "-c",
		`[ $HOROVOD_RANK = 0 ] && kill -9 $PPID; exec sleep 1000`)
	l.expect(137, "rank 0 on host localhost (pid ", "was killed by signal 9 (SIGKILL)")
}

func TestCommandsThatCannotRun(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(dir+"/data", []byte("x"), 0o644)
	os.WriteFile(dir+"/broken", []byte("#!/no/such/interpreter\n"), 0o755)
	os.WriteFile(dir+"/plain", []byte("echo plain $1\n"), 0o755)
	path := []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	launched(t, nil, "-np", "2", "no-such-command").expect(127, "horovodrun: no-such-command: command not found\n")
	t.Chdir(t.TempDir())
	for file, says := range map[string]string{"train.py": "python train.py", "start": "./start", "a b": "'./a b'"} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"-np=1", "--min-np=1"} {
			launched(t, nil, "-np", "1", kind, file).expect(127, "horovodrun: "+file+": command not found, but there "+
				"is a file of that name here: write "+says+"\n")
		}
	}
	launched(t, nil, "-np", "2", dir+"/none").expect(127, "horovodrun: "+dir+"/none: no such file\n")
	launched(t, nil, "-np", "2", dir).expect(126, "is a directory")
	launched(t, nil, "-np", "2", dir+"/broken").expect(127, dir+"/broken", `"/no/such/interpreter"`)
	launched(t, path, "-np", "2", "data").expect(126, "permission denied")
	l := launched(t, path, "-np", "1", "plain", "text") // a script without #!
	l.expect(0)
	if l.stdout.String() != "[0]<stdout>:plain text\n" {
		t.Errorf("%s", &l.stdout)
	}
	launched(t, nil, "-np", "2", dir+"/data").expect(126, "permission denied")
	launched(t, nil, "-np", "1000000", "true").expect(2, "-np 1000000: this host's limit on", "raise")
	launched(t, nil, "-np", "3", "-H", "localhost:2", "true").expect(2, "only 2 slots")
}

func TestRanksMeet(t *testing.T) {
	l := launched(t, program("join"), "-np", "4", self())
	l.expect(0)
	if n := strings.Count(l.stdout.String(), "<stdout>:joined\n"); n != 4 {
		t.Errorf("%d of 4 have joined: %s%s", n, &l.stdout, &l.stderr)
	}
}

// Ranks that wait in the rendezvous learn at once which rank cannot come.
func TestARankThatNeverJoinsIsNamedByTheOthers(t *testing.T) {
	for exit, c := range map[string]struct {
		code int
		how  string
	}{
		"0":    {7, "exited with code 0 before hvd.init()"},
		"5":    {5, "exited with code 5 before hvd.init()"},
		"kill": {137, "was killed by signal 9 (SIGKILL) before hvd.init()"},
	} {
		l := launched(t, program("join", "EXIT="+exit), "-np", "3", self())
		l.expect(c.code)
		for _, rank := range []string{"0", "2"} {
			says := regexp.MustCompile(`\[` + rank +
				`\]<stderr>:rendezvous "join": rank 1 on host localhost \(pid \d+\) ` + regexp.QuoteMeta(c.how) + "\n")
			if !says.MatchString(l.stderr.String()) {
				t.Errorf("EXIT=%s: rank %s does not say %s:\n%s", exit, rank, says, &l.stderr)
			}
		}
	}
}

func TestVersionAndBuild(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--version", version.Horovod + " (gorovod " + version.Version + ")\n"}, {"-v", "0.28.1"},
		{"-cb", "Horovod v0.28.1:\n"}, {"--check-build", "    [X] Gloo\n"}, {"--help", "--fusion-threshold-mb"},
	} {
		l := launched(t, nil, c.args)
		l.expect(0)
		if !strings.Contains(l.stdout.String(), c.want) {
			t.Errorf("%s: %s", c.args, &l.stdout)
		}
	}
}

func TestLicenses(t *testing.T) {
	l := launched(t, nil, "--licenses")
	l.Args[0] = "gorovod"
	l.expect(0)
	if !strings.Contains(l.stdout.String(), "Permission is hereby granted, free of charge") {
		t.Errorf("%s", &l.stdout)
	}
}

// A shell starts background commands with SIGINT ignored. The launcher still obeys a SIGINT, and its processes have
// SIGINT at its default.
func TestInterruptInTheBackground(t *testing.T) {
	l := launched(t, nil, "-np", "2", "sh", "-c", "echo ready; exec sleep 60")
	l.Args = append([]string{"sh", "-c", `trap "" INT; exec -a horovodrun "$0" "$@"`, l.Path}, l.Args[1:]...)
	sh, err := exec.LookPath("bash") // exec -a is not in every sh
	if err != nil {
		t.Skip("no bash")
	}
	l.Path = sh
	l.until("ready", 2)
	l.Process.Signal(syscall.SIGINT)
	l.Wait()
	if code := l.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d\n%s", code, l.stderr.String())
	}
}

// If output cannot be written, every kind of job says so before anything starts.
func TestOutputThatIsNone(t *testing.T) {
	dir := t.TempDir()
	for _, rank := range []string{"rank.0", "rank.1"} {
		if err := os.Mkdir(filepath.Join(dir, rank), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "rank.1", "stderr"), 0o600); err != nil {
		t.Fatal(err)
	}
	launched(t, nil, "-np", "2", "--output-filename", dir, "touch", filepath.Join(dir, "ran")).expect(1,
		"horovodrun: --output-filename: "+dir+"/rank.1/stderr: it is a pipe")
	for _, option := range []string{"", "--min-np=1"} {
		args := []string{"-np", "2", "--output-filename", "/dev/full", option, "touch", filepath.Join(dir, "ran")}
		launched(t, nil, slices.DeleteFunc(args, func(a string) bool { return a == "" })...).expect(1,
			"horovodrun: --output-filename: mkdir /dev/full: not a directory")
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("it has started")
	}
}

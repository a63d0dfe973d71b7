package top_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/hvd"
	"github.com/gorovod/gorovod/internal/launch"
)

// rankVariable is the variable that makes this program a rank.
const rankVariable = "GOROVOD_TOP_TEST_RANK"

// deadline is long enough for a loaded machine.
const deadline = 3 * time.Minute

func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case name == "horovodrun" || name == "gorovod" || name == "gorovod-supervisor":
		os.Exit(launch.Main(os.Args))
	case os.Getenv(rankVariable) != "":
		os.Exit(rank())
	}
	os.Exit(m.Run())
}

// rank sums until somebody ends it. Rank 1 is slow.
func rank() int {
	if err := hvd.Init(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for data := make([]float32, 1000); ; {
		if hvd.Rank() == 1 {
			time.Sleep(20 * time.Millisecond)
		}
		if err := hvd.Allreduce(context.Background(), "gradient\x1b[2J", data); err != nil {
			return 1
		}
	}
}

// job starts a job of two ranks.
func job(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := exec.Command(self)
	c.Args = append(append([]string{"horovodrun", "-np", "2"}, args...), self)
	c.Env = append(os.Environ(), rankVariable+"=1", "HOROVOD_CYCLE_TIME=1")
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
		if t.Failed() {
			t.Logf("the job said:\n%s", &out)
		}
	})
	return c
}

// terminal is a pseudo-terminal, and all that was written to it.
type terminal struct {
	master *os.File
	device string // the path of the slave
	mu     sync.Mutex
	text   []byte
}

func openTerminal(t *testing.T) (term *terminal, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	device := fmt.Sprintf("/dev/pts/%d", number)
	slave, err = os.OpenFile(device, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	term = &terminal{master: master, device: device}
	go func() {
		for p := make([]byte, 1<<16); ; {
			n, err := master.Read(p)
			term.mu.Lock()
			term.text = append(term.text, p[:n]...)
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { master.Close() })
	return term, slave
}

func (term *terminal) resize(t *testing.T, columns, lines uint16) {
	t.Helper()
	err := unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines})
	if err != nil {
		t.Fatal(err)
	}
}

func (term *terminal) written() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return string(term.text)
}

var escapes = regexp.MustCompile(`\x1b(?:\[([0-9;?]*)([a-zA-Z])|\][^\x1b]*\x1b\\|[()].|[=>])`)

// screen returns what the terminal shows. It knows only the sequences that gorovod top uses.
func (term *terminal) screen() []string {
	var rows [60][200]rune
	y, x := 0, 0
	text := term.written()
	write := func(plain string) {
		for _, r := range plain {
			switch {
			case r == '\r':
				x = 0
			case r == '\n':
				y++
			case y < len(rows) && x < len(rows[0]):
				rows[y][x] = r
				x++
			}
		}
	}
	for text != "" {
		at := escapes.FindStringSubmatchIndex(text)
		if at == nil {
			write(text)
			break
		}
		write(text[:at[0]])
		if at[2] >= 0 {
			switch args, what := text[at[2]:at[3]], text[at[4]:at[5]]; {
			case what == "H":
				y, x = 1, 1
				fmt.Sscanf(args, "%d;%d", &y, &x)
				y, x = y-1, x-1
			case what == "J" || args == "?1049l":
				rows, y, x = [60][200]rune{}, 0, 0
			}
		}
		text = text[at[1]:]
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		lines[i] = strings.TrimRight(strings.ReplaceAll(string(row[:]), "\x00", " "), " ")
	}
	return lines
}

// await waits until a text is on the screen.
func (term *terminal) await(t *testing.T, want string) {
	t.Helper()
	term.until(t, want, func(lines []string) bool { return strings.Contains(strings.Join(lines, "\n"), want) })
}

func (term *terminal) until(t *testing.T, want string, holds func(lines []string) bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !holds(term.screen()); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in\n%s", want, strings.Join(term.screen(), "\n"))
		}
	}
}

// colours matches a sequence that sets a colour.
var colours = regexp.MustCompile(`\x1b\[([0-9;]*;)?[34][0-9](;[0-9;]*)?m`)

// top runs gorovod top on a terminal.
func top(t *testing.T, args ...string) (term *terminal, c *exec.Cmd) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	term, slave := openTerminal(t)
	defer slave.Close()
	term.resize(t, 100, 30)
	c = exec.Command(self)
	c.Args = append([]string{"gorovod", "top"}, args...)
	c.Env = append(os.Environ(), "TERM=xterm", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "NO_COLOR=1")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return term, c
}

// once runs top --once until it says want.
func once(t *testing.T, want string, args ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(deadline); ; time.Sleep(100 * time.Millisecond) {
		c := exec.Command(self)
		c.Args = append([]string{"gorovod", "top", "--once"}, args...)
		text, err := c.CombinedOutput()
		if err == nil && strings.Contains(string(text), want) {
			if bytes.Contains(text, []byte("\x1b")) {
				t.Errorf("%q", text)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %q in %v: %s", want, err, text)
		}
	}
}

// TestTopOfAJob looks at a job that knows nothing of it, until somebody ends the job.
func TestTopOfAJob(t *testing.T) {
	j := job(t)
	pid := fmt.Sprint(j.Process.Pid)
	once(t, "all 2 ranks have joined", pid)
	once(t, "The others wait for rank 1 on", pid)
	term, c := top(t, pid)
	term.await(t, "job "+pid)
	term.await(t, "WAITED-FOR")
	term.await(t, "wait for rank 1 on")
	term.await(t, `gradient\x1b[2J`)
	term.resize(t, 60, 12)
	term.until(t, "keys on line 12", func(lines []string) bool { return strings.HasPrefix(lines[11], "q quit") })
	term.master.WriteString("w")
	term.await(t, "*WAITS")
	if set := colours.FindString(term.written()); set != "" {
		t.Errorf("%q sets a colour", set)
	}
	j.Process.Signal(syscall.SIGTERM)
	term.await(t, "it has ended with exit code 143")
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if text := term.written(); !strings.Contains(text, "\x1b[?1049l") {
		t.Errorf("the terminal is left as it was: %q", text)
	}
}

// TestTheEndsOfTop quits, and looks at a launcher that is killed.
func TestTheEndsOfTop(t *testing.T) {
	j := job(t)
	pid := fmt.Sprint(j.Process.Pid)
	once(t, "job "+pid, pid) // the launcher can be asked now
	quits, c := top(t, pid)
	quits.await(t, "RANK")
	quits.master.WriteString("q")
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	term, c := top(t, pid)
	term.await(t, "RANK")
	j.Process.Kill()
	term.await(t, "has ended without a word")
	if err := c.Wait(); err == nil {
		t.Error("top has lost its job, and says that all is well")
	}
}

// TestTopOfSeveralJobs picks one on a terminal. --once lists them with the commands that show them.
func TestTopOfSeveralJobs(t *testing.T) {
	var pids []int
	for range 2 {
		pids = append(pids, job(t).Process.Pid)
	}
	slices.Sort(pids)
	for _, pid := range pids {
		once(t, fmt.Sprintf("job %d", pid), fmt.Sprint(pid)) // the launcher can be asked now
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command(self)
	list.Args = []string{"gorovod", "top", "--once"}
	said, err := list.CombinedOutput()
	if err == nil {
		t.Errorf("one of several jobs is shown: %s", said)
	}
	for _, pid := range pids {
		if !strings.Contains(string(said), fmt.Sprintf("\n  gorovod top --once %d  (", pid)) {
			t.Errorf("no command for %d in %s", pid, said)
		}
	}
	term, c := top(t)
	term.await(t, "Which one?")
	first := 0 // the line of the first of the two: others of this user may run
	for i, l := range term.screen() {
		if strings.Contains(l, fmt.Sprintf("job %d:", pids[0])) {
			first = i
		}
	}
	var number int
	if _, err := fmt.Sscan(strings.TrimPrefix(term.screen()[first], ">"), &number); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(term.master, "%d\x1b[B\r", number) // the number, down, Enter
	term.await(t, "WAITED-FOR")
	term.await(t, fmt.Sprintf("job %d", pids[1]))
	term.master.WriteString("q")
	endsSoon(t, c, "after a pick and q")
	term, c = top(t)
	term.await(t, "Which one?")
	term.master.WriteString("q")
	endsSoon(t, c, "after q instead of a pick")
}

// TestTopTakesAnyByte types what no terminal should send. Neither is a key swallowed, nor does top loop.
func TestTopTakesAnyByte(t *testing.T) {
	pid := fmt.Sprint(job(t).Process.Pid)
	once(t, "job "+pid, pid)
	for _, typed := range []string{"\xff", "\xc3", "\xc3\xa9\xe2\x82", "\x00\x80"} {
		term, c := top(t, pid)
		term.await(t, "RANK")
		term.master.WriteString(typed)
		time.Sleep(50 * time.Millisecond) // so that the next key comes alone
		term.master.WriteString("w")
		term.await(t, "*WAITS")
		term.master.WriteString(typed + "q")
		endsSoon(t, c, fmt.Sprintf("after %q and q", typed))
	}
}

// TestTopEndsWithItsTerminal takes the terminal away, stops its output, or ends top by a signal.
func TestTopEndsWithItsTerminal(t *testing.T) {
	pid := fmt.Sprint(job(t).Process.Pid)
	once(t, "job "+pid, pid)
	for name, end := range map[string]func(term *terminal, c *exec.Cmd){
		"a byte and a hangup": func(term *terminal, _ *exec.Cmd) {
			term.master.WriteString("\xff")
			time.Sleep(100 * time.Millisecond)
			term.master.Close()
		},
		"a byte and SIGTERM": func(term *terminal, c *exec.Cmd) {
			term.master.WriteString("\xff")
			time.Sleep(100 * time.Millisecond)
			c.Process.Signal(syscall.SIGTERM)
		},
		"SIGTERM while the output is stopped": func(term *terminal, c *exec.Cmd) {
			slave, err := os.OpenFile(term.device, os.O_RDWR|syscall.O_NOCTTY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer slave.Close()
			const suspend = 0 // TCOOFF
			if err := unix.IoctlSetInt(int(slave.Fd()), unix.TCXONC, suspend); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second) // the next Snapshot waits for the terminal
			c.Process.Signal(syscall.SIGTERM)
		},
	} {
		term, c := top(t, pid)
		term.await(t, "RANK")
		end(term, c)
		endsSoon(t, c, name)
	}
}

// endsSoon waits for the end of top, which its user must not notice as a wait.
func endsSoon(t *testing.T, c *exec.Cmd, why string) {
	t.Helper()
	over := make(chan error, 1)
	go func() { over <- c.Wait() }()
	select {
	case err := <-over:
		if err != nil {
			t.Errorf("%s: %v", why, err)
		}
	case <-time.After(10 * time.Second): // on a loaded machine; it takes less than a second
		c.Process.Kill()
		<-over
		t.Errorf("%s: top goes on", why)
	}
}

package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// documented are the rows of a table in docs/errors.md: the first cell of each, and the others.
func documented(t *testing.T, heading string) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), heading+"\n")
	if !ok {
		t.Fatalf("there is no %q", heading)
	}
	table, _, _ = strings.Cut(table, "\n## ")
	_, table, _ = strings.Cut(table, "|---|")
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "or"), " | ")
		if strings.HasPrefix(line, "| ") {
			rows[strings.Trim(cells[0], "| ")] = cells[1:]
		}
	}
	return rows
}

// A real job ends with every code that the documentation lists.
func TestDocumentedExitCodesOfJobs(t *testing.T) {
	cases := endings(t)
	rows := documented(t, "## Exit codes of `horovodrun`")
	for code := range rows {
		if cases[code] == nil {
			t.Errorf("no job ends with %q", code)
		}
	}
	for row, jobs := range cases {
		if rows[row] == nil {
			t.Errorf("%q is not documented", row)
		}
		for _, c := range jobs {
			t.Run(row+"/"+c.name, func(t *testing.T) {
				l := launched(t, []string{"A=b", c.env}, append([]string{"--grace-period", "0"}, c.args...)...)
				if c.stdout != nil {
					l.Stdout = c.stdout
				}
				if c.signal != 0 {
					l.expectAfter("ready", c.signal, c.code)
					return
				}
				l.expect(c.code)
			})
		}
	}
}

// A coded is a job, and the code with which its launcher ends.
type coded struct {
	name   string
	args   []string
	env    string
	stdout *os.File
	signal syscall.Signal
	code   int
}

// endings are jobs, by their row in the table.
func endings(t *testing.T) map[string][]coded {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	lost := filepath.Join(dir, "reach")
	agent := fmt.Sprintf("#!/bin/sh\nprintf '%s %d %s /opt/gorovod\\n'\n"+
		"IFS= read -r line\nhead -c 5 >/dev/null\n%ssleep 0.3\nexit 255\n",
		wire.AgentGreeting, wire.Protocol, wire.Build(), frameOf(`n{"Type":"ready","Ready":{"PID":1}}`))
	for file, content := range map[string]string{text: "no program\n", lost: agent} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(lost, 0o700); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { full.Close() })
	unread, broken, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	unread.Close()
	t.Cleanup(func() { broken.Close() })
	return map[string][]coded{
		"0": {{name: "all end", args: []string{"-np", "2", "true"}}},
		"1": {
			{name: "no host", args: []string{"-np", "1", "-H", "198.18.0.1:1", "true"}, env: remote.SSHVariable +
				"=false", code: 1},
			{name: "too few hosts", args: []string{"-np", "1", "--min-np", "1", "--host-discovery-script", "/bin/true",
				"--elastic-timeout", "1", "true"}, code: 1},
			{name: "a full disk", args: []string{"-np", "1", "echo", "x"}, stdout: full, code: 1},
		},
		"2": {
			{name: "no number", args: []string{"-np", "x", "true"}, code: 2},
			{name: "no command", args: []string{"-np", "1"}, code: 2},
		},
		"126": {{name: "no program", args: []string{"-np", "1", text}, code: 126}},
		"127": {{name: "no file", args: []string{"-np", "1", "no-such-command"}, code: 127}},
		"128 + n": {
			{name: "killed", args: []string{"-np", "2", "sh", "-c", "kill -9 $$"}, code: 128 + 9},
			{name: "interrupted", args: []string{"-np", "2", "sh", "-c", "echo ready; exec sleep 60"},
				signal: syscall.SIGTERM, code: 128 + 15},
		},
		"141": {{name: "no reader", args: []string{"-np", "1", "yes"}, stdout: broken, code: 141}},
		"255": {{name: "a host is gone", args: []string{"-np", "1", "-H", "198.18.0.1:1", "true"},
			env: remote.SSHVariable + "=" + lost, code: 255}},
		"other": {
			{name: "a process's", args: []string{"-np", "2", "sh", "-c", "exit 42"}, code: 42},
			{name: "in an elastic job", code: 42,
				args: []string{"-np", "1", "--min-np", "1", "-H", "localhost:1", "sh", "-c", "exit 42"}},
		},
	}
}

// expectAfter is expect for a job that a signal ends once the job has printed text.
func (l *launcher) expectAfter(text string, s syscall.Signal, code int) {
	l.t.Helper()
	l.until(text, 1)
	l.Process.Signal(s)
	l.Wait()
	if got := l.ProcessState.ExitCode(); got != code {
		l.t.Errorf("exit code %d, want %d: %s", got, code, &l.stderr)
	}
}

func TestDocumentedExitCodesOfCommands(t *testing.T) {
	const broken = "GOROVOD_SSH=false"
	fresh := filepath.Join(t.TempDir(), "fresh")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	// For each command the arguments that end it with 0, 1 and 2. A ">" at the beginning gives it a stdout that is
	// full.
	cases := map[string][3][]string{
		"`gorovod doctor`": {{"doctor"}, {"doctor", "-H", "198.18.0.1:1"}, {"doctor", "--nonsense"}},
		"`gorovod doctor --env`": {{"doctor", "--env"}, {"doctor", "--env", "HOROVOD_RANK=x"},
			{"doctor", "--env", "more"}},
		"`gorovod doctor --gpu`": {nil, {"doctor", "--gpu", "--python", "no-such-python"},
			{"doctor", "--gpu", "--no-pairs"}},
		"`gorovod doctor --dump`": {nil, {"doctor", "--dump", "/no/such"},
			{"doctor", "--dump", "/", "-H", "a:1"}},
		"`gorovod doctor --bundle`": {{"doctor", "--bundle", fresh}, {"doctor", "--bundle", "/no/such/file"},
			{"doctor", "--bundle", fresh, "--env"}},
		"`gorovod bench`": {nil, nil, {"bench", "--nonsense"}},
		"`gorovod rendezvous`": {{"rendezvous", "-n", "1"}, {"rendezvous", "-n", "1", "--listen", "198.18.0.1:1"},
			{"rendezvous", "-n", "0"}},
		"`gorovod completion`, `gorovod man`": {{"completion", "bash"}, {">", "man"},
			{"completion", "nonsense"}},
		"`gorovod --version`, `gorovod --licenses`, `gorovod --help`": {{"--version"}, {">", "--licenses"},
			{"nonsense"}},
	}
	rows := documented(t, "## Exit codes of `gorovod`")
	for row := range rows {
		if _, ok := cases[row]; !ok {
			t.Errorf("nothing is run for %s", row)
		}
	}
	for row, commands := range cases {
		if len(rows[row]) != 3 {
			t.Errorf("%s is not documented", row)
		}
		for code, args := range commands {
			if args == nil {
				continue // that command's own test covers it
			}
			t.Run(fmt.Sprint(row, "/", code), func(t *testing.T) {
				env := []string{broken}
				if last := args[len(args)-1]; strings.HasPrefix(last, "HOROVOD_") {
					env, args = append(env, last), args[:len(args)-1]
				}
				into, args := args[0], args
				if into == ">" {
					args = args[1:]
				}
				l := launched(t, env, args...)
				l.Args[0] = "gorovod"
				if into == ">" {
					l.Stdout = full
				}
				if args[0] == "rendezvous" && code == 0 {
					l.expectAfter(spawn.SecretVariable, syscall.SIGTERM, code)
					return
				}
				l.expect(code)
			})
		}
	}
}

// TestCommandsThatCannotPrint: a command whose output is lost says so in one line, and ends with 1.
func TestCommandsThatCannotPrint(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, line := range []string{"ps", "doctor --env", "k8s render job x --image i --nodes 2 -- train", "man",
		"completion bash", "--version", "--licenses", "--help", "run --help", "run --version", "ps --help",
		"top --help", "doctor --help", "bench --help", "k8s --help", "trace --help", "leave --help",
		"rendezvous --help", "drive --help", "rendezvous -n 1"} {
		l := launched(t, nil, strings.Fields(line)...)
		l.Args[0], l.Stdout = "gorovod", full
		l.expect(1)
		if said := l.stderr.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "no space left") {
			t.Errorf("%s says %q", line, said)
		}
	}
}

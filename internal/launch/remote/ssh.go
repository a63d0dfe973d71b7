package remote

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/regular"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// SSHVariable names a program to use in place of ssh, with its first arguments. Only a program called ssh gets ssh's
// options. Every program gets the host, and the remote command as one argument.
const SSHVariable = "GOROVOD_SSH"

// kubexecVariable names the program by which an MPIJob of Kubeflow reaches its pods; kubexecPath is its usual place.
const (
	kubexecVariable = "OMPI_MCA_plm_rsh_agent"
	kubexecPath     = "/etc/mpi/kubexec.sh"
)

// Shell is the way to other hosts.
type Shell struct {
	Port     int    // 0: ssh's own choice
	Identity string // a file with a key; empty: ssh's own choice
	// Agent is the command for gorovod on the other host; empty to look for it there.
	Agent string
	// Timeout is how long a host may take.
	Timeout time.Duration
	// Near are directories that may have gorovod on both hosts, such as that of the job's Python.
	Near []string
	// Self is this program's file.
	Self string
	// Getenv looks a variable of the launcher up.
	Getenv func(string) string

	// Open, if not nil, replaces the program. Tests and benchmarks connect to hosts of their own by it.
	Open func(host string) (*Line, error)
}

// command is the program that runs an agent on host and passes its stdin and
// stdout on.
func (r *Shell) command(host string) (*exec.Cmd, error) {
	program := strings.Fields(r.Getenv(SSHVariable))
	if len(program) == 0 {
		var err error
		if program, err = kubexecProgram(r.Getenv); err != nil {
			return nil, err
		}
	}
	if len(program) == 0 {
		program = []string{"ssh"}
	}
	args := program[1:]
	if filepath.Base(program[0]) == "ssh" {
		seconds := max(1, int(r.Timeout/time.Second))
		// No user is there to answer questions. ssh accepts the keys of new hosts, and refuses changed keys.
		args = append(args, "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o",
			"ConnectTimeout="+strconv.Itoa(seconds))
		if r.Port != 0 {
			args = append(args, "-p", strconv.Itoa(r.Port))
		}
		if r.Identity != "" {
			args = append(args, "-i", r.Identity)
		}
	}
	cmd := exec.Command(program[0], append(args, strings.Trim(host, "[]"), r.shell())...)
	cmd.Env = withoutSecrets(os.Environ())
	return cmd, nil
}

// withoutSecrets removes the variables that other programs must not know.
func withoutSecrets(env []string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, spawn.SecretVariable+"=") && !strings.HasPrefix(e, "_"+spawn.SecretVariable+"=") {
			kept = append(kept, e)
		}
	}
	return kept
}

// shell is the command for the login shell of another host, whichever shell that is.
func (r *Shell) shell() string {
	if r.Agent != "" {
		return r.Agent + " agent"
	}
	// This program's own path comes first: hosts with shared files or equal installations have this very version there.
	// horovodrun comes last, because it may be Horovod's own program.
	candidates := []string{r.Self, "gorovod"}
	for _, dir := range r.Near {
		candidates = append(candidates, filepath.Join(dir, "gorovod"))
	}
	candidates = append(candidates, "horovodrun")
	const script = `for c do p=$(command -v "$c" 2>/dev/null) && exec "$p" agent; done; echo "` + wire.NobodyGreeting +
		` $*"; exit 127`
	var b strings.Builder
	b.WriteString("exec sh -c '" + script + "' sh")
	seen := map[string]bool{}
	for _, c := range candidates {
		if c != "" && !seen[c] {
			seen[c] = true
			b.WriteString(" " + commandline.Quote(c))
		}
	}
	return b.String()
}

// kubexec makes a command of Kubeflow's script. The script runs kubectl exec without stdin; the command runs it with
// stdin.
func kubexec(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", kubexecVariable, path, err)
	}
	script := strings.ReplaceAll(string(text), "kubectl exec ", "kubectl exec -i ")
	return []string{"/bin/sh", "-c", strings.ReplaceAll(script, "exec -i -i ", "exec -i "), path}, nil
}

// HostError says why no commands can run on a host.
type HostError struct {
	Host   string
	What   string
	Advice string // empty where there is none
	// TurnedAway: an sshd on the way has hung up, as sshd does when it has too many connections.
	TurnedAway bool
}

func (e *HostError) Error() string {
	text := fmt.Sprintf("host %s: %s", e.Host, strings.ReplaceAll(e.What, "\n", "\n    "))
	if e.Advice != "" {
		text += "\n    " + e.Advice
	}
	return text
}

// sshFailed is ssh's exit code for its own failures.
const sshFailed = 255

// tailOf keeps the end of what is written to it, in whole lines as far as it can.
type tailOf struct {
	mu sync.Mutex
	b  []byte
}

const maxSaid = 4 << 10

func (t *tailOf) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*maxSaid {
		t.b = append(t.b[:0], t.b[len(t.b)-maxSaid:]...)
	}
	return len(p), nil
}

// forget drops the text so far.
func (t *tailOf) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = nil
}

// text is ssh's output without its decorations.
func (t *tailOf) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.Lines(string(t.b)) {
		line = strings.TrimSpace(line)
		if line != "" && strings.Trim(line, "@") != "" {
			lines = append(lines, line)
		}
	}
	return strings.ToValidUTF8(strings.Join(lines, "\n"), "?")
}

// kubexecProgram is the command that reaches the pods of an MPIJob whose operator uses no ssh; nil for another job.
func kubexecProgram(getenv func(string) string) ([]string, error) {
	if agent := getenv(kubexecVariable); agent == kubexecPath || agent == "" && regular.Is(kubexecPath) {
		return kubexec(kubexecPath)
	}
	return nil, nil
}

package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sshVariable names another program than ssh, with arguments that come first. Only
// one that is called ssh gets ssh's options; every one gets the host and what to
// run there, as one argument.
const sshVariable = "GOROVOD_SSH"

// kubexecVariable names the program by which an MPIJob of Kubeflow reaches its
// pods, and kubexecPath is where it lies then.
const (
	kubexecVariable = "OMPI_MCA_plm_rsh_agent"
	kubexecPath     = "/etc/mpi/kubexec.sh"
)

// reach is how other hosts are reached.
type reach struct {
	Port     int    // 0: ssh's own choice
	Identity string // a file with a key; empty: ssh's own choice
	// Agent is the command that is gorovod there; empty for one that is looked for.
	Agent string
	// Timeout bounds how long a host may take.
	Timeout time.Duration
	// Near are directories in which gorovod may lie there as here, such as the one
	// of the job's Python.
	Near []string
	// Self is this program's file.
	Self string
	// Getenv looks a variable of the launcher up.
	Getenv func(string) string
}

// command is the program that runs an agent on host and passes its stdin and
// stdout on.
func (r *reach) command(host string) (*exec.Cmd, error) {
	program := strings.Fields(r.Getenv(sshVariable))
	if len(program) == 0 && r.Getenv(kubexecVariable) == kubexecPath {
		var err error
		if program, err = kubexec(kubexecPath); err != nil {
			return nil, err
		}
	}
	if len(program) == 0 {
		program = []string{"ssh"}
	}
	args := program[1:]
	if filepath.Base(program[0]) == "ssh" {
		seconds := max(1, int(r.Timeout/time.Second))
		// Nobody is there to answer questions. Keys of hosts that are new are
		// taken, changed ones are not.
		args = append(args, "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", "ConnectTimeout="+strconv.Itoa(seconds))
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

// withoutSecrets drops what no other program needs to know.
func withoutSecrets(env []string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, secretVariable+"=") && !strings.HasPrefix(e, "_"+secretVariable+"=") {
			kept = append(kept, e)
		}
	}
	return kept
}

// shell is what the login shell of another host is to run, whichever shell that is.
func (r *reach) shell() string {
	if r.Agent != "" {
		return r.Agent + " agent"
	}
	// This program's own place is asked first: where hosts share their files or are
	// installed alike, it has this very version there. One called horovodrun may
	// be Horovod's own.
	candidates := []string{r.Self, "gorovod"}
	for _, dir := range r.Near {
		candidates = append(candidates, filepath.Join(dir, "gorovod"))
	}
	candidates = append(candidates, "horovodrun")
	const script = `for c do p=$(command -v "$c" 2>/dev/null) && exec "$p" agent; done; echo "` + nobodyGreeting + ` $*"; exit 127`
	var b strings.Builder
	b.WriteString("exec sh -c '" + script + "' sh")
	seen := map[string]bool{}
	for _, c := range candidates {
		if c != "" && !seen[c] {
			seen[c] = true
			b.WriteString(" " + quote(c))
		}
	}
	return b.String()
}

// quote makes one word of s for any shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// kubexec makes a command of Kubeflow's script, which runs kubectl exec and does
// not pass stdin on: the same script with that asked for.
func kubexec(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", kubexecVariable, path, err)
	}
	script := strings.ReplaceAll(string(text), "kubectl exec ", "kubectl exec -i ")
	return []string{"/bin/sh", "-c", strings.ReplaceAll(script, "exec -i -i ", "exec -i "), path}, nil
}

// hostError says why there is nothing to run commands on a host.
type hostError struct {
	Host   string
	What   string
	Advice string // empty where there is none
}

func (e *hostError) Error() string {
	text := fmt.Sprintf("host %s: %s", e.Host, strings.ReplaceAll(e.What, "\n", "\n    "))
	if e.Advice != "" {
		text += "\n    " + e.Advice
	}
	return text
}

const notThere = "gorovod is not there under that name: say with --remote-command what it is called there"

// sshAdvice says what can be done about what ssh has said.
func sshAdvice(host string, code int, text string) string {
	for _, a := range []struct{ says, advice string }{
		{"HOST IDENTIFICATION HAS CHANGED", "its key is not the one that was known. If the host was set up anew, forget the old key: ssh-keygen -R " + host},
		{"Host key verification failed", "its key is not the one that is known, or may not be added: see ssh -o BatchMode=yes " + host + " true"},
		{"Permission denied", "ssh must work without a password: ssh-copy-id " + host + ", or name a key with --ssh-identity-file"},
		{"Too many authentication failures", "name the right key with --ssh-identity-file"},
		{"Could not resolve hostname", "is the name right? It must be one that this host, or a Host in ~/.ssh/config, knows"},
		{"No route to host", "is the host up, and is there a firewall?"},
		{"Network is unreachable", "is the address right, and is this host in that network?"},
		{"Connection refused", "no sshd listens at that port: --ssh-port says another one"},
		{"timed out", "is the host up, and is there a firewall? --start-timeout gives it more time"},
		{"Connection closed by", "its sshd has refused the connection: its log says why (MaxStartups, AllowUsers)"},
		{"Exec format error", "the program there is for another kind of machine: install the one for it, and name it with --remote-command"},
	} {
		if strings.Contains(text, a.says) {
			return a.advice
		}
	}
	if code == exitNotFound {
		return notThere
	}
	if code == 0 || code == exitUsage {
		return "what was run there is no gorovod of this version: say with --remote-command what it is called there"
	}
	if code > 0 && code != sshFailed {
		return "is what was run there gorovod? --remote-command says what it is called there"
	}
	return ""
}

// sshFailed is the exit code by which ssh tells of its own failures.
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

// text is what was said, without the decorations of ssh.
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

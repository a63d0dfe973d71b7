package launch

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// fakeSSH is a program that runs on this host the command that ssh would run on another, in another directory and with
// little environment.
const fakeSSH = `#!/bin/sh
while [ $# -gt 2 ]; do shift; done
cd /
exec env -i PATH="$PATH" GORACE="$GORACE" FAKE_HOST="$1" sh -c "$2"
`

// remotely lets a launcher reach other hosts by fakeSSH.
func remotely(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ssh")
	if err := os.WriteFile(path, []byte(fakeSSH), 0o700); err != nil {
		t.Fatal(err)
	}
	return remote.SSHVariable + "=" + path
}

// farHosts are addresses of hosts that are never this one. Names would have to be looked up.
func farHosts(n, slots int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("198.18.%d.%d:%d", i/250, 1+i%250, slots))
	}
	return strings.Join(names, ",")
}

func TestFarRanksHaveTheLaunchersEnvironment(t *testing.T) {
	l := launched(t, []string{remotely(t), "SSH_AUTH_SOCK=/x", "HOSTNAME=launchers", "CUDA_VISIBLE_DEVICES=3",
		"KEPT=yes", "HANDED=on"}, "-np", "2", "-H", "far1.invalid:1,far2.invalid:1", "-x", "SET=a=b", "-x",
		"CUDA_VISIBLE_DEVICES", "-x", "NOWHERE", "sh", "-c", "cat; env; pwd")
	l.expect(0)
	out := l.stdout.String()
	for rank, host := range []string{"far1.invalid", "far2.invalid"} {
		for _, want := range []string{"KEPT=yes", "SET=a=b", "CUDA_VISIBLE_DEVICES=3", "FAKE_HOST=" + host,
			"HOROVOD_HOSTNAME=" + host, "HOROVOD_LOCAL_SIZE=1", "HOROVOD_CROSS_SIZE=2"} {
			if !strings.Contains(out, fmt.Sprintf("[%d]<stdout>:%s\n", rank, want)) {
				t.Errorf("rank %d has not %s", rank, want)
			}
		}
	}
	for _, not := range []string{"SSH_AUTH_SOCK", "HOSTNAME=launchers", "HOROVOD_GLOO_RENDEZVOUS_ADDR=127.",
		"HOROVOD_GLOO_IFACE", "NOWHERE"} {
		if strings.Contains(out, ">:"+not) {
			t.Errorf("it has %s", not)
		}
	}
	if dir, _ := os.Getwd(); strings.Count(out, ">:"+dir+"\n") != 2 {
		t.Errorf("it does not run in %s: %s", dir, out)
	}
}

// The secret goes through ssh's stdin, so that nobody on any host sees it.
func TestNoSecretReachesSSHsArguments(t *testing.T) {
	l := launched(t, []string{remotely(t), spawn.SecretVariable + "=00ff"}, "-np", "1", "--verbose", "-H",
		"far.invalid:1", "sh", "-c", "echo $HOROVOD_SECRET_KEY; ps -e -o args")
	l.expect(0)
	secret, _, _ := strings.Cut(strings.TrimPrefix(l.stdout.String(), "[0]<stdout>:"), "\n")
	if len(secret) != 64 || strings.Count(l.stdout.String(), secret) != 1 ||
		strings.Contains(l.stderr.String(), secret) {
		t.Errorf("the secret is %q", secret)
	}
}

// The input that horovod.run gives to its ranks may be larger than a frame.
func TestFarRanksGetAllOfALargeInput(t *testing.T) {
	input, dir := filepath.Join(t.TempDir(), "input"), t.TempDir()
	if err := os.WriteFile(input, bytes.Repeat([]byte("0123456789abcdef"), wire.MaxFrame/16+1), 0o600); err != nil {
		t.Fatal(err)
	}
	l := launched(t, []string{remotely(t)}, "--input", input, "--results", dir, "-np", "2", "-H",
		"localhost:1,far.invalid:1", "sh", "-c", "sha256sum")
	l.expect(0)
	out, _ := exec.Command("sha256sum", input).Output()
	sum, _, _ := strings.Cut(string(out), " ")
	if sum == "" || strings.Count(l.stdout.String(), sum) != 2 {
		t.Errorf("the input's sum is %s, and the ranks have read\n%s", sum, &l.stdout)
	}
}

// A user who names loopback for a job of several hosts gets an error before the ranks fail to meet.
func TestLoopbackLeadsToNoOtherHost(t *testing.T) {
	l := launched(t, []string{remotely(t)}, "-np", "2", "-H", "localhost:1,far.invalid:1", "--network-interfaces",
		"lo", "true")
	l.expect(0, "--network-interfaces: loopback (lo) is all that there is of these on this host, far.invalid, and it "+
		"leads to no other host")
	launched(t, nil, "-np", "2", "--network-interfaces", "lo", "true").expect(0)
}

func TestFarFailuresAreToldAsNearOnes(t *testing.T) {
	env := []string{remotely(t)}
	l := launched(t, env, "-np", "3", "-H", "localhost:1,far.invalid:2", "--grace-period", "0.1", "sh", "-c",
		`if [ $HOROVOD_RANK = 2 ]; then echo trouble >&2; exit 42; fi; exec sleep 1000`)
	l.expect(42, "Process 2 exit with status code 42.", "rank 2 on host far.invalid (pid ",
		"exited with code 42; its stderr is above, in the lines of [2]<stderr>")
	launched(t, env, "-np", "1", "-H", "far.invalid:1", "sh", "-c", "kill -SEGV $$").expect(139,
		"was killed by signal 11 (SIGSEGV)")
	launched(t, env, "-np", "1", "-H", "far.invalid:1", "no-such-command").expect(127,
		"cannot start rank 0: no-such-command: command not found")
	launched(t, append(env, program("join")...), "-np", "3", "-H", "localhost:1,far.invalid:2", self()).expect(0)
}

func TestWithoutSSH(t *testing.T) {
	launched(t, []string{remote.SSHVariable + "=/no/such/ssh"}, "-np", "1", "-H", "far.invalid:1", "true").
		expect(1, "host far.invalid: cannot start /no/such/ssh", "install an ssh client")
	launched(t, []string{remote.SSHVariable + "=sleep"}, "-np", "1", "-H", "5:1", "--start-timeout", "1", "true").
		expect(1, "host 5: ", "could not connect to some hosts via ssh")
}

// An agent sends no more of a stream than was granted, and obeys meanwhile.
func TestOutputWaitsForCredit(t *testing.T) {
	cmd := exec.Command(self(), "agent")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer stop.Stop()
	frames := &wire.Receiver{R: bufio.NewReader(out)}
	wire.Greet(in, wire.LauncherGreeting, "")
	line, _ := wire.ReadLine(frames.R, wire.MaxGreeting)
	if g, ok := wire.ParseGreeting(wire.AgentGreeting, line); !ok || !g.Same() {
		t.Fatalf("%q", line)
	}
	s := &wire.Sender{W: in}
	s.Send(wire.Note{Type: wire.JobNote, Job: &wire.Assignment{Host: "h", Secret: "00", Slots: 1}})
	s.Send(wire.Note{Type: wire.StartNote, ID: 7, Command: &spawn.Command{Args: []string{"sh", "-c",
		"echo first >&2; exec yes"}, Env: os.Environ()}})
	var got [spawn.Streams]int
	next := func() *wire.Note {
		t.Helper()
		f, err := frames.Next()
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		if f.Note == nil {
			if f.ID != 7 {
				t.Fatalf("output of %d", f.ID)
			}
			got[f.Stream] += len(f.Data)
		}
		return f.Note
	}
	for got[spawn.Stdout] < wire.StreamWindow || got[spawn.Stderr] == 0 {
		next()
	}
	s.Send(wire.Note{Type: wire.CreditNote, ID: 7, Stream: spawn.Stdout, Bytes: 1000})
	for got[spawn.Stdout] < wire.StreamWindow+1000 {
		next()
	}
	s.Send(wire.Note{Type: wire.PingNote})
	for n := next(); n == nil || n.Type != wire.PongNote; n = next() {
	}
	if got[spawn.Stdout] != wire.StreamWindow+1000 {
		t.Errorf("%d bytes have come", got[spawn.Stdout])
	}
	s.Send(wire.Note{Type: wire.SignalNote, ID: 7, Signal: int(syscall.SIGTERM)})
	n := next()
	for ; n == nil || n.Type != wire.EndedNote; n = next() {
	}
	if n.Signal != int(syscall.SIGTERM) {
		t.Errorf("it has ended with %+v", n)
	}
	in.Close() // the rest is dropped
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// An agent does not obey frames that come before a launcher's greeting and job.
func TestAgentsObeyLaunchersOnly(t *testing.T) {
	for in, code := range map[string]int{
		"":                        ending.UsageCode,
		"GET / HTTP/1.1\r\n\r\n":  ending.UsageCode,
		strings.Repeat("x", 5000): ending.UsageCode,
		"gorovod-launcher " + fmt.Sprint(wire.Protocol) + " 0.0.1 \n": 1,
		"gorovod-launcher 77 " + wire.Build() + " \n":                 1,
		// another build
		"gorovod-launcher " + fmt.Sprint(wire.Protocol) + " 0.1.0+0badc0de0000 \n": 1,
		// cut short
		"gorovod-launcher " + fmt.Sprint(wire.Protocol) + " " + wire.Build() + " \nabc": 0,
		// before the job
		"gorovod-launcher " + fmt.Sprint(wire.Protocol) + " " + wire.Build() +
			" \n\x00\x00\x00\x10n{\"Type\":\"ping\"}": 1,
		"gorovod-launcher " + fmt.Sprint(wire.Protocol) + " " + wire.Build() +
			" \n\xff\xff\xff\xff": 0,
	} {
		cmd := exec.Command(self(), "agent")
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		cmd.Stdin = strings.NewReader(in)
		out, _ := cmd.Output()
		if got := cmd.ProcessState.ExitCode(); got != code || !strings.HasPrefix(string(out), wire.AgentGreeting) {
			t.Errorf("%.40q: exit code %d, want %d; it says %q", in, got, code, out)
		}
	}
}

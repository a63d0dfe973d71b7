package launch

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// safeBuffer is a launcher's stderr, which a test reads while the launcher runs.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// awaitText waits until the launcher's stderr contains text.
func awaitText(t *testing.T, stderr *safeBuffer, text string) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); !strings.Contains(stderr.String(), text); {
		if time.Now().After(limit) {
			t.Fatalf("stderr does not say %q:\n%s", text, stderr)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// catching is a rank of sh that says which signal it gets, until SIGTERM.
const catching = `trap "echo got USR1" USR1; trap "echo got USR2" USR2; trap "exit 0" TERM; echo ready; ` +
	`while :; do sleep 0.05; done`

// deaf is a rank that SIGUSR1 and SIGUSR2 kill.
const deaf = `trap "exit 0" TERM; echo ready; while :; do sleep 0.05; done`

// The ranks that catch SIGUSR1 or SIGUSR2 get it, wherever they run and whoever started them. The others live on.
func TestSignalsOfUsersAreForwarded(t *testing.T) {
	far := remotely(t)
	script := t.TempDir() + "/discover"
	os.WriteFile(script, []byte("#!/bin/sh\necho localhost:1\necho 198.18.0.1:1\n"), 0o700)
	mixed := `if [ "${HOROVOD_RANK}" = 0 ]; then ` + catching + "; else " + deaf + "; fi"
	for name, c := range map[string]struct {
		args   []string
		rank   string
		sig    syscall.Signal
		caught int
		says   string
	}{
		"all":        {[]string{"-np", "2"}, catching, syscall.SIGUSR1, 2, "forwarded SIGUSR1 to 2 ranks\n"},
		"the second": {[]string{"-np", "2"}, catching, syscall.SIGUSR2, 2, "forwarded SIGUSR2 to 2 ranks\n"},
		"none": {[]string{"-np", "2"}, deaf, syscall.SIGUSR1, 0,
			"SIGUSR1 is not forwarded: no rank catches it, so it would kill them\n"},
		"some": {[]string{"-np", "3"}, mixed, syscall.SIGUSR1, 1,
			"forwarded SIGUSR1 to 1 of 3 ranks; it would kill 2, which catch no SIGUSR1\n"},
		"below a wrapper": {[]string{"-np", "2"}, "sh -c " + commandline.Quote(catching) + "; true", syscall.SIGUSR1, 2,
			"forwarded SIGUSR1 to 2 ranks\n"},
		"below one in a session of its own": {[]string{"-np", "2"}, "setsid -w sh -c " + commandline.Quote(catching) +
			"; true", syscall.SIGUSR1, 2, "forwarded SIGUSR1 to 2 ranks\n"},
		"not below one that catches": {[]string{"-np", "2"}, `trap "echo got USR1" USR1; sh -c ` +
			commandline.Quote(strings.ReplaceAll(catching, "got", "below")) + ` & trap "exit 0" TERM; while :; do sleep 0.05; done`,
			syscall.SIGUSR1, 2, "forwarded SIGUSR1 to 2 ranks\n"},
		"other hosts": {[]string{"-np", "3", "-H", "localhost:1," + farHosts(2, 1)}, catching, syscall.SIGUSR1, 3,
			"forwarded SIGUSR1 to 3 ranks\n"},
		"some on other hosts": {[]string{"-np", "3", "-H", farHosts(1, 2) + ",localhost:1"}, mixed, syscall.SIGUSR1, 1,
			"forwarded SIGUSR1 to 1 of 3 ranks; it would kill 2, which catch no SIGUSR1\n"},
		"elastic": {[]string{"-np", "2", "--min-np", "1"}, catching, syscall.SIGUSR1, 2,
			"forwarded SIGUSR1 to 2 ranks\n"},
		"elastic, other hosts": {[]string{"-np", "2", "--min-np", "1", "--host-discovery-script", script}, catching,
			syscall.SIGUSR1, 2, "forwarded SIGUSR1 to 2 ranks\n"},
		"a node": {[]string{"--nnodes", "1", "--nproc-per-node", "2"}, catching, syscall.SIGUSR1, 2,
			"forwarded SIGUSR1 to 2 ranks\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := launched(t, []string{far}, append(c.args, "sh", "-c", c.rank)...)
			stderr := &safeBuffer{}
			l.Stderr = stderr
			ranks := 2
			if strings.Contains(strings.Join(c.args, " "), "-np 3") {
				ranks = 3
			}
			lines := l.until("ready", ranks)
			l.Process.Signal(c.sig)
			awaitText(t, stderr, c.says)
			got := 0
			want := strings.Replace(rendezvous.SignalName(int(c.sig)), "SIG", "got ", 1)
			for got < c.caught && lines.Scan() {
				if strings.Contains(lines.Text(), want) {
					got++
				}
			}
			l.Process.Signal(syscall.SIGTERM)
			for lines.Scan() {
				if strings.Contains(lines.Text(), "got") || strings.Contains(lines.Text(), "below") {
					t.Errorf("more than expected: %q", lines.Text())
				}
			}
			l.Wait()
			if code := l.ProcessState.ExitCode(); got != c.caught || code != 128+int(syscall.SIGTERM) {
				t.Errorf("%d ranks got it, want %d; exit code %d: %s", got, c.caught, code, stderr)
			}
		})
	}
}

// Each launcher of two nodes forwards a signal to its own ranks, and that of node 0 to all. If both get it at the same
// time, as under srun, each rank gets it once.
func TestEachNodesLauncherForwards(t *testing.T) {
	for _, count := range []string{"2", "1:2"} {
		t.Run(count, func(t *testing.T) {
			t.Parallel()
			port, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			port.Close()
			var launchers []*launcher
			var outputs, errors [2]safeBuffer
			for node := range 2 {
				l := launched(t, []string{secretFile(t, strings.Repeat("0a", 32))}, "--nnodes", count, "--node-rank",
					fmt.Sprint(node), "--master-addr", "127.0.0.1", "--master-port",
					fmt.Sprint(port.Addr().(*net.TCPAddr).Port), "--nproc-per-node", "1", "-np", "2",
					"sh", "-c", catching)
				l.Stdout, l.Stderr = &outputs[node], &errors[node]
				if err := l.Start(); err != nil {
					t.Fatal(err)
				}
				launchers = append(launchers, l)
			}
			awaitText(t, &outputs[0], "[0]<stdout>:ready")
			awaitText(t, &outputs[0], "[1]<stdout>:ready")
			launchers[1].Process.Signal(syscall.SIGUSR2)
			awaitText(t, &errors[1], "forwarded SIGUSR2 to 1 rank of this node\n")
			awaitText(t, &outputs[0], "got USR2")
			launchers[0].Process.Signal(syscall.SIGUSR1)
			launchers[1].Process.Signal(syscall.SIGUSR1)
			awaitText(t, &errors[0], "forwarded SIGUSR1 to 2 ranks\n")
			awaitText(t, &errors[1], "forwarded SIGUSR1 to 1 rank of this node\n")
			awaitText(t, &outputs[0], "[0]<stdout>:got USR1")
			awaitText(t, &outputs[0], "[1]<stdout>:got USR1")
			launchers[0].Process.Signal(syscall.SIGTERM)
			launchers[0].Wait()
			launchers[1].Process.Signal(syscall.SIGTERM) // an elastic node would wait for node 0
			launchers[1].Wait()
			out := outputs[0].String()
			if ones, twos := strings.Count(out, "got USR1"), strings.Count(out, "got USR2"); ones != 2 || twos != 1 {
				t.Errorf("SIGUSR1 came %d times to 2 ranks, SIGUSR2 %d times to 1:\n%s", ones, twos, out)
			}
		})
	}
}

// A signal that comes before there are ranks is answered, too, and does not end the launcher.
func TestForwardedBeforeTheRanks(t *testing.T) {
	l := launched(t, []string{secretFile(t, strings.Repeat("0a", 32))}, "--nnodes", "2", "--node-rank", "1",
		"--master-addr", "127.0.0.1", "--master-port", "1", "true")
	stderr := &safeBuffer{}
	l.Stderr = stderr
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	awaitText(t, stderr, "horovodrun: ")
	l.Process.Signal(syscall.SIGUSR1)
	awaitText(t, stderr, "SIGUSR1 is not forwarded: no rank runs now\n")
	l.Process.Signal(syscall.SIGTERM)
	l.Wait()
}

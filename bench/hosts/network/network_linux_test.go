package network_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/bench/hosts/network"
)

// keepVariable makes the test binary a program that makes a network, says so, and waits.
const keepVariable = "GOROVOD_NETWORK_TEST_KEEP"

func TestMain(m *testing.M) {
	if dir := os.Getenv(keepVariable); dir != "" {
		w, err := network.New(dir, 2, network.Link{Delay: time.Millisecond})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("made", w.Hosts[0].PID(), w.Hosts[1].PID())
		select {}
	}
	os.Exit(m.Run())
}

func newNetwork(t *testing.T, n int, link network.Link) *network.Network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("hosts need root")
	}
	w, err := network.New(t.TempDir(), n, link)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(w.Close)
	return w
}

// run runs a command by the stand-in for ssh, and returns its output.
func run(t *testing.T, w *network.Network, host, command string) string {
	t.Helper()
	out, err := exec.Command(w.Shell(), "-T", "-o", "BatchMode=yes", host, command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s on %s: %v: %s", command, host, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Each host has its own name, interface, shared memory and table of names, and both names and addresses lead to it.
func TestHostsAreApart(t *testing.T) {
	w := newNetwork(t, 3, network.Link{Rate: 1e9})
	for i, h := range w.Hosts {
		got := run(t, w, h.Address, "uname -n; touch /dev/shm/mine-$(uname -n); ls /dev/shm; ls /sys/class/net")
		if got != fmt.Sprintf("h%d\nmine-h%d\neth0\nlo", i, i) {
			t.Errorf("host %d: %q", i, got)
		}
		if got := run(t, w, h.Name, "getent hosts h2"); !strings.HasPrefix(got, "10.80.0.3 ") {
			t.Errorf("host %d knows h2 as %q", i, got)
		}
	}
	if out, err := exec.Command(w.Shell(), "h7", "true").CombinedOutput(); err == nil || !strings.Contains(string(out),
		"no host h7") {
		t.Errorf("h7: %v, %s", err, out)
	}
}

// The relay holds back each packet for the delay. It loses nothing of a long transfer, and changes no byte.
func TestRelay(t *testing.T) {
	const delay = 3 * time.Millisecond
	w := newNetwork(t, 3, network.Link{Rate: 1e9, Delay: delay})
	way, err := w.OneWay()
	if err != nil {
		t.Fatal(err)
	}
	if way < delay.Seconds() {
		t.Errorf("one way takes %v, and the delay is %v", way, delay)
	}
	transfer(t, w)
}

// Without a delay the kernel's bridge joins the hosts.
func TestBridge(t *testing.T) {
	w := newNetwork(t, 2, network.Link{Rate: 10e9})
	if _, err := w.OneWay(); err != nil {
		t.Fatal(err)
	}
	transfer(t, w)
}

// transfer sends 32 MiB from the first host to the second, and compares their sums.
func transfer(t *testing.T, w *network.Network) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const receive = `import hashlib, socket
l = socket.create_server(("10.80.0.2", 0)); print(l.getsockname()[1], flush=True)
c, _ = l.accept(); h = hashlib.sha256()
while p := c.recv(1 << 20): h.update(p)
print(h.hexdigest())`
	const send = `import hashlib, random, socket, sys
p = random.Random(1).randbytes(32 << 20)
c = socket.create_connection(("10.80.0.2", int(sys.argv[1]))); c.sendall(p); c.close()
print(hashlib.sha256(p).hexdigest())`
	receiver := w.Hosts[1].Command(ctx, "python3", "-c", receive)
	receiver.Stderr = os.Stderr
	out, err := receiver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	sent, err := w.Hosts[0].Command(ctx, "python3", "-c", send, lines.Text()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, sent)
	}
	lines.Scan()
	if got := lines.Text(); got != strings.TrimSpace(string(sent)) {
		t.Errorf("received %q, sent %q", got, sent)
	}
	receiver.Wait()
}

// Nothing is left of a network whose process is killed.
func TestKill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("hosts need root")
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), keepVariable+"="+t.TempDir())
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	var pids [2]int
	if _, err := fmt.Sscanf(line, "made %d %d\n", &pids[0], &pids[1]); err != nil {
		c.Wait()
		t.Skip(line)
	}
	c.Process.Kill()
	c.Wait()
	for _, pid := range pids {
		gone := false
		for range 1000 {
			text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "cmdline"))
			if gone = err != nil || len(text) == 0; gone {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !gone {
			t.Errorf("process %d still keeps its namespaces", pid)
		}
	}
}

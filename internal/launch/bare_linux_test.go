package launch

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// inNamespaces starts a launcher in namespaces of its own, after a shell has run before there. It skips the test where
// that is not allowed.
func inNamespaces(t *testing.T, namespaces, before string, env []string, args ...string) *launcher {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil || os.Geteuid() != 0 {
		t.Skipf("namespaces need root and unshare (Debian: util-linux): %v", err)
	}
	if out, err := exec.Command(unshare, namespaces, "sh", "-c", before).CombinedOutput(); err != nil {
		t.Skipf("%s: %v: %s", before, err, out)
	}
	l := launched(t, env)
	program := l.Path
	l.Path = unshare
	bash, err := exec.LookPath("bash") // exec -a is not in every sh
	if err != nil {
		t.Fatal(err)
	}
	l.Args = append([]string{"unshare", namespaces, bash, "-c", before + ` && exec -a horovodrun "$0" "$@"`,
		program}, args...)
	return l
}

// A host may have no IPv4 at all. If its loopback is down, the error says what to do.
func TestHostsWithoutIPv4(t *testing.T) {
	for _, mode := range [][]string{nil, {"--min-np", "2"}} {
		l := inNamespaces(t, "-n", "ip link set lo up && ip addr del 127.0.0.1/8 dev lo", program("join"),
			append(mode, "-np", "2", "true")...)
		if mode == nil {
			l.Args[len(l.Args)-1] = self()
		}
		l.expect(0)
	}
	inNamespaces(t, "-n", "true", nil, "-np", "2", "true").expect(1, "neither 127.0.0.1 nor ::1 can be reached",
		"ip link set lo up")
}

// Without /proc jobs run, also with an input, and the processes of a rank's group end with the rank.
func TestWithoutProc(t *testing.T) {
	input := t.TempDir() + "/input"
	if err := os.WriteFile(input, []byte("the input\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range [][]string{{"-np", "2"}, {"-np", "2", "--min-np", "2"}} {
		l := inNamespaces(t, "-m", "mount -t tmpfs none /proc", nil, append(mode, "--input", input, "sh", "-c",
			"sleep 1000 & cat; exit 0")...)
		l.expect(0)
		if n := strings.Count(l.stdout.String(), "<stdout>:the input\n"); n != 2 {
			t.Errorf("%d of 2 have read it: %s%s", n, &l.stdout, &l.stderr)
		}
		l.nobodyLeft()
	}
}

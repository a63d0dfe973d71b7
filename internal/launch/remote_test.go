package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeSSH is a program that runs on this host what ssh would run on another, in
// another directory and with little environment.
const fakeSSH = `#!/bin/sh
while [ $# -gt 2 ]; do shift; done
cd /
exec env -i PATH="$PATH" GORACE="$GORACE" FAKE_HOST="$1" sh -c "$2"
`

// remotely has a launcher reach other hosts by fakeSSH.
func remotely(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ssh")
	if err := os.WriteFile(path, []byte(fakeSSH), 0o700); err != nil {
		t.Fatal(err)
	}
	return sshVariable + "=" + path
}

// farHosts are names of hosts that nobody takes for this one.
func farHosts(n, slots int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("far%d.invalid:%d", i, slots))
	}
	return strings.Join(names, ",")
}

// How a launch grows with the number of hosts, ssh's own costs aside.
func BenchmarkHosts(b *testing.B) {
	for _, n := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			env := remotely(b)
			for b.Loop() {
				l := launched(b, []string{env}, "-np", fmt.Sprint(n), "-H", farHosts(n, 1), "true")
				l.expect(0)
			}
		})
	}
}

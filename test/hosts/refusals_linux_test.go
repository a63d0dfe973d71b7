package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// For each reason why a host cannot be reached there is an error with advice, within
// the start time-out. Nothing runs on any host.
func TestHostsThatCannotBeReached(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	ran := c.File("ran")
	refuse := func(hosts string, options []string, says ...string) {
		t.Helper()
		begin := time.Now()
		c.run(nil, append(append([]string{"-np", "2", "-H", hosts}, options...), "touch", ran)...).expect(1,
			append(says, "could not connect to some hosts via ssh")...)
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("%s: it took %v", hosts, took)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("%s: something was run", hosts)
		}
	}
	refuse("h0:1,10.78.0.77:1", []string{"--start-timeout", "2"},
		`host 10\.78\.0\.77: (there was no answer in time|.*timed out|.*No route to host)`, "is the host up")
	refuse("h0:1,172.30.1.1:1", nil, "Network is unreachable", "is this host in that network")
	refuse("h1:1,no-such-host.invalid:1", nil, "Could not resolve hostname", "is the name right")
	refuse("h1:1,h2:1", []string{"-p", "2222"}, "host h1: .*Connection refused", "host h2: .*Connection refused",
		"--ssh-port")
	refuse("h1:1,h2:1", []string{"--remote-command", "/no/gorovod"}, "2 of 2", "/no/gorovod", "--remote-command")
	refuse("h1:1,h2:1", []string{"--remote-command", "echo"}, "what was run there is no gorovod of this version")
	refuse("h1:1,h2:1", []string{"--remote-command", "cat"}, "gorovod.*--remote-command")
	refuse("h1:1,h2:1", []string{"--remote-command", "cat; #"}, "it repeats what it is told", "--remote-command")

	// No key fits, so that ssh would ask for a password.
	c.Keygen("id")
	refuse("h1:1,h2:1", nil, "host h1: .*Permission denied", "host h2: ", "ssh-copy-id -F .*/config h1")
	c.Write("none", "")
	refuse("h1:1", []string{"-np", "1", "-i", c.File("none")}, "ssh-copy-id -F .*/config h1")
	c.run(nil, "-np", "1", "-H", "h1:1", "-i", c.File("missing"), "touch", ran).expect(2,
		"--ssh-identity-file: .*missing: no such file")
}

// An sshd that accepts one connection at a time refuses further ones, and the launcher tries these again.
func TestHostsBehindOneDoor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "MaxStartups 1:100:1")
	c.run(nil, "-np", "4", "-H", "h1:1,six1:1,10.78.0.2:1,[fd78::2]:1", "true").expect(0)
}

// A host key that has changed is refused, and the advice in the error solves that. By the
// user's configuration, the key is known under an address, an address with a port, or a
// name of its own.
func TestHostKeysThatHaveChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	address := c.Hosts[1].Address
	c.Write("sshd1", readFile(t, c.File("sshd1"))+"Port 2222\n")
	c.Write("config", readFile(t, c.File("config"))+fmt.Sprintf("Host p1\n HostName %s\n Port 2222\nHost a1\n "+
		"HostName %s\n HostKeyAlias another\n", address, address))
	restart := func() {
		c.StopSSHD(1)
		c.StartSSHD(1)
	}
	restart()
	known := map[string]string{"h1": address, "p1": fmt.Sprintf("'[%s]:2222'", address), "a1": "another"}
	// h1 is last, because for a port that has no known key ssh takes the key of the address.
	for _, host := range []string{"p1", "a1", "h1"} {
		c.run(nil, "-np", "1", "-H", host+":1", "true").expect(0)
	}
	c.Keygen("host1")
	restart()
	for host, name := range known {
		j := c.run(nil, "-np", "1", "-H", host+":1", "true")
		j.expect(1, "host "+host+": ", "HOST IDENTIFICATION HAS CHANGED", "could not connect to some hosts via ssh")
		_, advised, _ := strings.Cut(j.stderr.String(), "forget the old one: ")
		advised, _, _ = strings.Cut(advised, "\n")
		if !strings.HasSuffix(advised, " -R "+name) {
			t.Fatalf("%s: %s is advised, for %s", host, advised, name)
		}
		if out, err := exec.Command("sh", "-c", advised).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", advised, err, out)
		}
		c.run(nil, "-np", "1", "-H", host+":1", "true").expect(0)
	}
}

func TestSSHThatAsksForAPassword(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "PubkeyAuthentication no", "KbdInteractiveAuthentication yes")
	c.Write("sshd1", readFile(t, c.File("sshd1"))+"\n") // unchanged; sed changes it next
	out, _ := exec.Command("sed", "-i", "s/PasswordAuthentication no/PasswordAuthentication yes/",
		c.File("sshd1")).CombinedOutput()
	if len(out) > 0 {
		t.Fatalf("%s", out)
	}
	c.StopSSHD(1)
	c.StartSSHD(1)
	c.run(nil, "-np", "1", "-H", "h1:1", "true").expect(1, `host h1: .*Permission denied \(.*password`,
		"ssh must work without a password")
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The launcher names an agent of another version, before it sends anything to it.
func TestOtherVersions(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	for _, says := range []string{"gorovod-agent 2 0.0.9 /opt/old/gorovod", "gorovod-agent 99 0.1.0 /opt/old/gorovod",
		"gorovod-agent 2 0.1.0+0badc0de0000 /opt/old/gorovod"} {
		c.Write("old", fmt.Sprintf("#!/bin/sh\necho '%s'\ncat >%s\n", says, c.File("heard")))
		if err := os.Chmod(c.File("old"), 0o700); err != nil {
			t.Fatal(err)
		}
		c.run(nil, "-np", "1", "-H", "h1:1", "--remote-command", c.File("old"), "true").
			expect(1, `host h1: /opt/old/gorovod there is gorovod 0\.[01]\.[09](\+0badc0de0000)?, and this is 0\.1\.0\+[0-9a-f]{12}`, "install the same version")
		heard, _ := os.ReadFile(c.File("heard")) // it may be ended before it listens
		if len(heard) > 60 {
			t.Errorf("it was told %q", heard)
		}
	}
}

// A command that cannot run on another host is named with its rank, as on this host.
func TestCommandsThatCannotRunThere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	c.run(nil, "-np", "2", "-H", "h1:2", "no-such-command").expect(127,
		"cannot start rank [01]: no-such-command: command not found")
	c.run(nil, "-np", "2", "-H", "h0:1,h1:1", "no-such-command").expect(127, "no-such-command: command not found")
	c.run(nil, "-np", "2", "-H", "h1:2", c.Dir).expect(126, "is a directory")
	c.run(nil, "-np", "2", "-H", "h1:1", "true").expect(2, "only 1 slot ")
}

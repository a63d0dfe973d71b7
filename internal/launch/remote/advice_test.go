package remote

import (
	"strings"
	"testing"
)

// The advised command forgets the changed key, by the name and in the file in which ssh has looked, whatever the host
// is called here.
func TestAdviceOnKeys(t *testing.T) {
	const warning = "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nAdd correct host key in " +
		"/home/u/.ssh/known_hosts to get rid of this message.\n"
	for says, advises := range map[string]string{
		"Offending ED25519 key in /home/u/.ssh/known_hosts:3\nHost key for [10.0.0.7]:2222 has changed and you have " +
			"requested strict checking.": "ssh-keygen -f /home/u/.ssh/known_hosts -R '[10.0.0.7]:2222'",
		"Offending RSA key in /my keys/it's:12\r\nRSA host key for thealias has changed and you have requested " +
			"strict checking.": `ssh-keygen -f '/my keys/it'\''s' -R thealias`,
		"Offending key for IP in /k:1\nOffending ECDSA key in /etc/ssh/ssh_known_hosts:9\nHost key for node has " +
			"changed and you have requested": "ssh-keygen -f /etc/ssh/ssh_known_hosts -R node",
		"words that are new": "ssh-keygen -R h",
	} {
		got := sshAdvice([]string{"ssh", "h"}, "h", sshFailed, warning+says+"\nHost key verification failed.")
		if !strings.HasSuffix(got, "forget the old one: "+advises) {
			t.Errorf("%s:\n%s, want %s", says, got, advises)
		}
	}
}

// The advised commands reach the host as ssh has reached it.
func TestAdviceOnCommands(t *testing.T) {
	ssh := []string{"/usr/bin/ssh", "-F", "my config", "-T", "-o", "BatchMode=yes", "-p", "2222", "-i", "/key", "h"}
	for says, advises := range map[string]string{
		"u@h: Permission denied (publickey,password).": "ssh-copy-id -F 'my config' -p 2222 h, or",
		"Host key verification failed.": "/usr/bin/ssh -F 'my config' -T -o BatchMode=yes -p 2222 -i " +
			"/key h true",
	} {
		if got := sshAdvice(ssh, "h", sshFailed, says); !strings.Contains(got, advises) {
			t.Errorf("%s: %s, want %s", says, got, advises)
		}
	}
	if got := sshAdvice([]string{"rsh", "-p", "h"}, "h", 1, "Permission denied"); !strings.Contains(got,
		"ssh-copy-id h, or") {
		t.Errorf("for another program: %s", got)
	}
	if ssh[len(ssh)-1] != "h" {
		t.Error("the command line is changed")
	}
}

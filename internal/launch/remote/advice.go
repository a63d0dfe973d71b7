package remote

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/lazyregexp"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

const notThere = "gorovod is not there under that name: say with --remote-command what it is called there"

// sshAdvice says what the user can do about ssh's messages. ssh is the command line without the remote command; code is
// ssh's exit code.
func sshAdvice(ssh []string, host string, code int, text string) string {
	for _, a := range []struct{ says, advice string }{
		{"HOST IDENTIFICATION HAS CHANGED", forgetKey(host, text)},
		{"Host key verification failed", "its key is not the one that is known, or may not be added: see what " +
			"this says: " + commandline.Join(append(slices.Clone(ssh), "true"))},
		{"Permission denied", "ssh must work without a password: " + commandline.Join(copyID(ssh, host)) +
			", or name a key with --ssh-identity-file"},
		{"Too many authentication failures", "name the right key with --ssh-identity-file"},
		{"Could not resolve hostname", "is the name right? It must be one that this host, or a Host in " +
			"~/.ssh/config, knows"},
		{"No route to host", "is the host up, and is there a firewall?"},
		{"Network is unreachable", "is the address right, and is this host in that network?"},
		{"Connection refused", "no sshd listens at that port: --ssh-port says another one"},
		{"timed out", "is the host up, and is there a firewall? --start-timeout gives it more time"},
		{"Connection reset by", "its sshd, or a jump host's, has refused the connection: its log says why " +
			"(MaxStartups)"},
		{"Connection closed by", "its sshd, or a jump host's, has refused the connection: its log says why " +
			"(MaxStartups, AllowUsers)"},
		{"Exec format error", "the program there is for another kind of machine: install the one for it, and name it " +
			"with --remote-command"},
	} {
		if strings.Contains(text, a.says) {
			return a.advice
		}
	}
	if code == spawn.NotFoundCode {
		return notThere
	}
	if code == 0 || code == ending.UsageCode {
		return "what was run there is no gorovod of this version: say with --remote-command what it is called there"
	}
	if code > 0 && code != sshFailed {
		return "is what was run there gorovod? --remote-command says what it is called there"
	}
	return ""
}

// Both match ssh's message about a changed key: changedName the host's name (with the port unless it is 22),
// changedFile the file with the old key. The user's configuration (HostName, Port, HostKeyAlias, UserKnownHostsFile)
// decides both, and the name may be a jump host's.
var (
	changedName = lazyregexp.New(`ost key for (\S+) has changed and you have requested`)
	changedFile = lazyregexp.New(`(?m)^Offending \S+ key in (.+):[0-9]+\s*$`)
)

// forgetKey is the advice about a changed key.
func forgetKey(host, text string) string {
	name, forget := host, []string{"ssh-keygen"}
	if m := changedFile().FindStringSubmatch(text); m != nil {
		forget = append(forget, "-f", m[1])
	}
	if m := changedName().FindStringSubmatch(text); m != nil {
		name = m[1]
	}
	return "the key of " + name + " is not the one that was known. If it was set up anew, forget the old one: " +
		commandline.Join(append(forget, "-R", name))
}

// copyID is the command that makes ssh work without a password on a host, over the way that ssh takes.
func copyID(ssh []string, host string) []string {
	command := []string{"ssh-copy-id"}
	if filepath.Base(ssh[0]) == "ssh" {
		for i := 1; i+1 < len(ssh); i++ {
			if ssh[i] == "-p" || ssh[i] == "-F" {
				command = append(command, ssh[i], ssh[i+1])
				i++
			}
		}
	}
	return append(command, host)
}

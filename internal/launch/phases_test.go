package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// A connection to a host may end at any time during a launch. Whenever it ends, the launcher names the host and ends.
// Until all hosts are ready, nothing runs anywhere.
func TestConnectionsThatEndInEachPhase(t *testing.T) {
	greeting := fmt.Sprintf("printf '%s %d %s /opt/gorovod\\n'\n", wire.AgentGreeting, wire.Protocol, wire.Build())
	ready := frameOf(`n{"Type":"ready","Ready":{"PID":1}}`)
	takeJob := "IFS= read -r line\nhead -c 5 >/dev/null\n"
	// Byte by byte, up to the order to start the rank: its environment follows.
	order := `got=; until case "$got" in *'"start"'*) true;; *) false;; esac; do got=$got$(head -c 1 | tr -d '\000'); done` + "\n"
	started := order + frameOf(`n{"Type":"started","ID":0,"PID":7}`)
	for name, c := range map[string]struct {
		script string
		code   int
		says   string
	}{
		"killed":             {"kill -9 $$", 1, "host 198.18.0.1: .* was ended by a signal: killed"},
		"before a word":      {"echo gone >&2; exit 255", 1, "host 198.18.0.1: .* ended with code 255: gone"},
		"in a word":          {"printf gorovod-age; exit 255", 1, "host 198.18.0.1: .* ended with code 255"},
		"after the greeting": {greeting + "exit 255", 1, "host 198.18.0.1: .* ended with code 255"},
		"silent after it":    {greeting + "exec sleep 60", 1, "host 198.18.0.1: there was no answer in time"},
		"a banner before it": {"echo welcome\n" + greeting + "exec sleep 60", 1,
			"host 198.18.0.1: there was no answer in time\n"},
		"another's answer": {"echo one; echo I am another; exec sleep 60", 1,
			"host 198.18.0.1: there was no answer of gorovod's in time, but this: I am another\n.*--remote-command"},
		"with the job": {greeting + takeJob + "exit 255", 1, "host 198.18.0.1: .* ended with code 255"},
		"amid its answer": {greeting + takeJob + "printf '\\000\\000\\000'; exit 255", 1,
			"host 198.18.0.1: .* ended with code 255"},
		"when it is ready": {greeting + takeJob + ready + order + "exit 255", 255,
			"rank 0 on host 198.18.0.1.* lost with its host"},
		"as it starts a rank": {greeting + takeJob + ready + order + "printf '\\000\\000\\001'; exit 255", 255,
			"rank 0 on host 198.18.0.1.* lost with its host"},
		"when a rank runs": {greeting + takeJob + ready + started + "sleep 0.3; exit 255", 255,
			`rank 0 on host 198.18.0.1 \(pid 7\).* lost with its host`},
		"when a rank has ended": {greeting + takeJob + ready + started +
			frameOf(`n{"Type":"ended","ID":0,"PID":7,"Code":4}`) + "sleep 0.3; exit 255", 4, "exit with status code 4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "reach")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			ran := filepath.Join(dir, "ran")
			l := launched(t, []string{remote.SSHVariable + "=" + path}, "-np", "1", "-H", "198.18.0.1:1",
				"--start-timeout", "2", "--grace-period", "0", "touch", ran)
			l.expect(c.code)
			if !regexp.MustCompile(c.says).MatchString(l.stderr.String()) {
				t.Errorf("it does not say %q: %s", c.says, &l.stderr)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("the command has run on this host")
			}
		})
	}
}

// frameOf is a shell's command that writes a frame.
func frameOf(body string) string {
	n := len(body)
	return "printf '\\000\\000\\" + octal(n>>8) + "\\" + octal(n&255) + strings.ReplaceAll(body, "'", `'\''`) + "'\n"
}

func octal(n int) string { return fmt.Sprintf("%03s", strconv.FormatInt(int64(n), 8)) }

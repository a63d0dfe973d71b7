package rendezvous

import (
	"strings"
	"testing"
)

// If a signal kills a rank under a shell, the shell exits with a code that stands for the signal.
func TestExitCodesOfShellsNameTheSignal(t *testing.T) {
	for code, says := range map[int]string{
		1: "code 1", 128: "code 128", 129: "code 129 (128+1: SIGHUP)", 137: "code 137 (128+9: SIGKILL)",
		159: "code 159 (128+31: SIGSYS)",
		160: "code 160", 161: "code 161", 162: "code 162 (128+34: signal 34)", 192: "code 192 (128+64: signal 64)",
		193: "code 193", 255: "code 255",
	} {
		d := Death{Rank: 2, Host: "h", PID: 7, ExitCode: code}
		if got, want := d.String(), "rank 2 on host h (pid 7) exited with "+says; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		d.NeverJoined = true
		if got := d.String(); !strings.HasSuffix(got, says+" before hvd.init()") {
			t.Errorf("got %q", got)
		}
	}
}

// A process that did not start has no PID, and messages name none.
func TestDeathWithoutPID(t *testing.T) {
	if s := (Death{Rank: 2, Host: "h", ExitCode: 127}).String(); s != "rank 2 on host h exited with code 127" {
		t.Errorf("%q", s)
	}
}

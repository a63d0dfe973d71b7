package job

import (
	"testing"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/driver"
)

// TestVerdict checks exit codes. A worker that says why it failed, as Ray's do, ends with code 0 as far as its starter
// knows; the job has failed all the same.
func TestVerdict(t *testing.T) {
	after := func(d rendezvous.Death) driver.Outcome { return driver.Outcome{Failure: &driver.Failure{Death: d}} }
	for name, c := range map[string]struct {
		outcome driver.Outcome
		code    int
		silent  bool
	}{
		"well":        {outcome: driver.Outcome{}, silent: true},
		"interrupted": {outcome: driver.Outcome{Reason: "enough of it"}, code: 1},
		"told":        {outcome: after(rendezvous.Death{Told: "raised"}), code: 1},
		"killed":      {outcome: after(rendezvous.Death{Signal: 9}), code: 137},
		"code":        {outcome: after(rendezvous.Death{ExitCode: 3}), code: 3},
	} {
		if code, text := Verdict(c.outcome); code != c.code || (text == "") != c.silent {
			t.Errorf("%s: code %d, %q", name, code, text)
		}
	}
}

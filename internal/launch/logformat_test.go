package launch

import (
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/logging"
)

func TestTheLaunchersMessagesInJSON(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-np", "x", "true"}, 2, `"level":"error","program":"horovodrun","rank":null,`},
		{[]string{"-np", "1", "no-such-command"}, 127, `"message":"no-such-command: command not found"`},
		{[]string{"-np", "1", "false"}, 1, `"level":"error","program":"horovodrun"`},
	} {
		l := launched(t, []string{"GOROVOD_LOG_FORMAT=json"}, c.args...)
		l.expect(c.code, c.says)
		for line := range strings.Lines(l.stderr.String()) {
			if !logging.IsJSON([]byte(line)) {
				t.Errorf("%v: no JSON: %s", c.args, line)
			}
		}
	}
}

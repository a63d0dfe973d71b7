package output

import (
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/logging"
)

// The launcher passes a rank's JSON log on as it is, however its lines are cut into pieces, and marks all other lines
// with their rank.
func TestJSONLinesOfARankHaveNoPrefix(t *testing.T) {
	const log = `{"logger":"gorovod","level":"info","rank":3}` + "\n"
	for _, c := range []struct {
		format logging.Format
		pieces string // separated by |
		want   string
	}{
		{logging.JSON, log, log},
		{logging.JSON, log[:5] + "|" + log[5:], log},
		{logging.JSON, log[:len(log)-1] + "|\n", log},
		{logging.JSON, "plain\n" + log + "{}\n", "[3]<stderr>:plain\n" + log + "[3]<stderr>:{}\n"},
		{logging.JSON, "50% " + log, "[3]<stderr>:50% \n" + log},
		{logging.JSON, "50% |" + log[:7] + "|" + log[7:] + "{|" + log,
			"[3]<stderr>:50% \n" + log + "[3]<stderr>:{\n" + log},
		{logging.JSON, "50%\r" + log + "51%\r|\n52%\r\n" + log, "[3]<stderr>:50%\n" + log + "[3]<stderr>:51%\n" +
			"[3]<stderr>:52%\n" + log},
		{logging.JSON, "{\"logger\":\"go", "[3]<stderr>:{\"logger\":\"go\n"},
		{logging.Text, "50%\r" + log, "[3]<stderr>:50%\r[3]<stderr>:" + log},
		{logging.Text, log, "[3]<stderr>:" + log},
	} {
		logging.Use(c.format)
		var b, file strings.Builder
		s := NewStream(&b, &file, 3, "stderr", false)
		for _, p := range strings.Split(c.pieces, "|") {
			s.Pass([]byte(p))
		}
		s.Pass(nil)
		if b.String() != c.want {
			t.Errorf("%s %q: %q, want %q", c.format, c.pieces, b.String(), c.want)
		}
		if at := strings.Count(file.String(), log) - strings.Count("\n"+file.String(), "\n"+log); at > 0 &&
			c.format == logging.JSON {
			t.Errorf("%q: %d of the log's lines do not begin a line of the file: %q", c.pieces, at, file.String())
		}
	}
	logging.Use(logging.Text)
}

package logging

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/printable"
)

// textForm is Horovod's form, with a letter for the level:
//
//	[2026-01-31 12:00:00.123456: W] [rank 3]: text key=value
//
// A text of several lines stays as it is.
type textForm struct {
	hideTime bool
	rank     int
}

func (f textForm) line(at time.Time, level slog.Level, text string, attributes []slog.Attr) string {
	var b strings.Builder
	letter := strings.ToUpper(nameOf(level)[:1])
	if f.hideTime {
		fmt.Fprintf(&b, "[%s]", letter)
	} else {
		fmt.Fprintf(&b, "[%s: %s]", at.Format("2006-01-02 15:04:05.000000"), letter)
	}
	fmt.Fprintf(&b, " [rank %d]: %s", f.rank, text)
	for _, a := range attributes {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value.Any())
	}
	return printable.Text(b.String()) + "\n"
}

package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/gorovod/gorovod/internal/printable"
)

// logHandler writes log lines in Horovod's form, with a letter for the level:
//
//	[2026-01-31 12:00:00.123456: W] [rank 3]: text key=value
//
// A text of several lines stays as it is. Each record is one write.
type logHandler struct {
	out      io.Writer
	level    slog.Level
	hideTime bool
	rank     int
	attrs    string // of With, formatted
}

var _ slog.Handler = (*logHandler)(nil)

func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	letter := "D"
	switch {
	case r.Level >= slog.LevelError:
		letter = "E"
	case r.Level >= slog.LevelWarn:
		letter = "W"
	case r.Level >= slog.LevelInfo:
		letter = "I"
	}
	if h.hideTime {
		fmt.Fprintf(&b, "[%s]", letter)
	} else {
		fmt.Fprintf(&b, "[%s: %s]", r.Time.Format("2006-01-02 15:04:05.000000"), letter)
	}
	fmt.Fprintf(&b, " [rank %d]: %s%s", h.rank, r.Message, h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(format(a))
		return true
	})
	_, err := io.WriteString(h.out, printable.Text(b.String())+"\n")
	return err
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	for _, a := range attrs {
		with.attrs += format(a)
	}
	return &with
}

// WithGroup is not needed by this module: a group's name is left out.
func (h *logHandler) WithGroup(string) slog.Handler { return h }

func format(a slog.Attr) string { return fmt.Sprintf(" %s=%v", a.Key, a.Value.Any()) }

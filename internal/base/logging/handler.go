package logging

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"time"
)

// form turns a record into a line with its newline. The line has no control characters.
type form interface {
	line(at time.Time, level slog.Level, text string, attributes []slog.Attr) string
}

// handler passes records to the form that is in use.
type handler struct {
	out        io.Writer
	options    Options
	text, json form
	with       []slog.Attr
}

var _ slog.Handler = (*handler)(nil)

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.options.Level }

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	attributes := slices.Clip(h.with)
	r.Attrs(func(a slog.Attr) bool {
		attributes = append(attributes, a)
		return true
	})
	f := h.text
	if InUse() == JSON {
		f = h.json
	}
	_, err := io.WriteString(h.out, f.line(r.Time, r.Level, r.Message, attributes))
	return err
}

func (h *handler) WithAttrs(attributes []slog.Attr) slog.Handler {
	with := *h
	with.with = append(slices.Clip(h.with), attributes...)
	return &with
}

// WithGroup ignores the group's name; this module uses none.
func (h *handler) WithGroup(string) slog.Handler { return h }

// nameOf names a level as HOROVOD_LOG_LEVEL does.
func nameOf(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l == Notice:
		return "info"
	case l >= slog.LevelWarn:
		return "warning"
	case l >= slog.LevelInfo:
		return "info"
	}
	return "debug"
}

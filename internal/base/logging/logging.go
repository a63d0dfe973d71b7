// Package logging writes gorovod's own messages on stderr: the engine's log, through slog, and the launcher's messages.
// Both have two forms: lines for people, and one JSON object a line for programs that collect logs
// (GOROVOD_LOG_FORMAT=json). A process uses one form for everything.
package logging

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/base/printable"
)

// FormatVariable is the variable that chooses the form.
const FormatVariable = "GOROVOD_LOG_FORMAT"

// Format is the form of a process's messages.
type Format string

const (
	Text Format = "text"
	JSON Format = "json"
)

// ParseFormat parses the value of FormatVariable; ok is false for an unknown form.
func ParseFormat(value string) (f Format, ok bool) {
	switch f = Format(strings.ToLower(value)); f {
	case "":
		return Text, true
	case Text, JSON:
		return f, true
	}
	return Text, false
}

var asJSON atomic.Bool

// Use sets the form of all further messages of this process.
func Use(f Format) { asJSON.Store(f == JSON) }

// InUse returns the form in use; Text before Use.
func InUse() Format {
	if asJSON.Load() {
		return JSON
	}
	return Text
}

// Notice is the level of information that a user gets by default, as if it were a warning: nothing is wrong, but the
// user may wonder. Its name is info.
const Notice = slog.LevelWarn + 1

// Options is the input of New.
type Options struct {
	Level    slog.Level // lower levels are left out
	HideTime bool
	Rank     int
	Host     string // empty: the system's name for the host
}

// New returns a rank's log. It writes each record by one Write, in the form that is then in use.
func New(out io.Writer, o Options) *slog.Logger {
	return slog.New(&handler{out: out, options: o, text: textForm{o.HideTime, o.Rank}, json: newJSONForm(o)})
}

// Message returns a program's message for stderr, with its newline: "horovodrun: text", or a JSON object.
func Message(level slog.Level, program, text string) string {
	text = strings.TrimRight(text, "\n")
	if InUse() == JSON {
		return messageForm(program).line(now(), level, text, nil)
	}
	return printable.Text(program+": "+text) + "\n"
}

// Print writes a Message to stderr.
func Print(level slog.Level, program, text string) {
	io.WriteString(os.Stderr, Message(level, program, text))
}

// Warn prints a problem that does not stop the command.
func Warn(program, text string) { Print(slog.LevelWarn, program, text) }

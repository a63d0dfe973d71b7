package logging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/printable"
)

// JSONPrefix begins each line in JSON. By it the launcher recognises a rank's log in the rank's output.
const JSONPrefix = `{"logger":"gorovod",`

// IsJSON reports whether a line of a rank's output comes from its log, in JSON.
func IsJSON(line []byte) bool { return bytes.HasPrefix(line, []byte(JSONPrefix)) }

// jsonForm is one JSON object a line. Users can rely on the order of its fields.
type jsonForm struct {
	Logger     string     `json:"logger"`         // "gorovod"
	Time       string     `json:"time,omitempty"` // UTC, RFC 3339; empty for HOROVOD_LOG_HIDE_TIME
	Level      string     `json:"level"`
	Program    string     `json:"program,omitempty"` // a launcher's, such as horovodrun; empty for a rank
	Rank       *int       `json:"rank"`              // null for a launcher
	Host       string     `json:"host"`
	PID        int        `json:"pid"`
	Message    string     `json:"message"`
	Attributes attributes `json:"attributes,omitempty"`

	hideTime bool
}

// attributes are a record's values, without its text, by name.
type attributes map[string]any

func newJSONForm(o Options) jsonForm {
	return jsonForm{Rank: &o.Rank, Host: hostName(o.Host), hideTime: o.HideTime}
}

func messageForm(program string) jsonForm { return jsonForm{Program: program, Host: hostName("")} }

// hostName is this host's name in the job, unless that name fits every host.
func hostName(known string) string {
	if known != "" && known != "localhost" {
		return known
	}
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return "localhost"
}

var now = time.Now

func (f jsonForm) line(at time.Time, level slog.Level, text string, of []slog.Attr) string {
	f.Logger, f.Level, f.PID, f.Message = "gorovod", nameOf(level), os.Getpid(), printable.Text(text)
	if !f.hideTime {
		f.Time = at.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	}
	if len(of) > 0 {
		f.Attributes = make(attributes, len(of))
	}
	for _, a := range of {
		f.Attributes[printable.Text(a.Key)] = plain(a.Value)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(f); err != nil { // plain values always have a JSON form
		return fmt.Sprintf("%s\"level\":\"error\",\"message\":%q}\n", JSONPrefix, err.Error())
	}
	return b.String()
}

// plain converts a value for JSON: numbers, booleans and lists of numbers stay as they are, everything else becomes
// text.
func plain(v slog.Value) any {
	switch x := v.Resolve().Any().(type) {
	case bool, int64, uint64, []int:
		return x
	case float64:
		if x-x == 0 { // JSON has no infinity
			return x
		}
	}
	return printable.Text(fmt.Sprint(v.Any()))
}

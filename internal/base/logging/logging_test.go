package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// says is a log's output for one record.
func says(t *testing.T, f Format, o Options, level slog.Level, text string, attributes ...any) string {
	t.Helper()
	Use(f)
	t.Cleanup(func() { Use(Text) })
	var b bytes.Buffer
	New(&b, o).With("a", 1).Log(t.Context(), level, text, attributes...)
	return b.String()
}

func TestText(t *testing.T) {
	o := Options{Level: slog.LevelInfo, HideTime: true, Rank: 3}
	for _, c := range []struct {
		level slog.Level
		text  string
		want  string
	}{
		{slog.LevelDebug, "x", ""},
		{slog.LevelInfo, "x", "[I] [rank 3]: x a=1 b=2\n"},
		{slog.LevelWarn, "two\nlines", "[W] [rank 3]: two\nlines a=1 b=2\n"},
		{slog.LevelError, "red \x1b[31m", `[E] [rank 3]: red \x1b[31m a=1 b=2` + "\n"},
	} {
		if got := says(t, Text, o, c.level, c.text, "b", 2); got != c.want {
			t.Errorf("%v %q: %q, want %q", c.level, c.text, got, c.want)
		}
	}
	o.HideTime = false
	if got := says(t, Text, o, slog.LevelInfo, "x"); !strings.HasPrefix(got, "["+time.Now().Format("2006-01-02 ")) {
		t.Errorf("no time: %q", got)
	}
}

func TestJSON(t *testing.T) {
	o := Options{Level: slog.LevelDebug, HideTime: true, Rank: 3, Host: "node7"}
	head := fmt.Sprintf(`{"logger":"gorovod","level":"%%s","rank":3,"host":"node7","pid":%d,"message":`, os.Getpid())
	for _, c := range []struct {
		level      slog.Level
		text       string
		attributes []any
		name, want string
	}{
		{slog.LevelDebug, "x", nil, "debug", `"x","attributes":{"a":1}}`},
		{slog.LevelWarn, "two\n\"lines\" <&>", nil, "warning", `"two\n\"lines\" <&>","attributes":{"a":1}}`},
		{slog.LevelInfo, "\x1b\x7f\u202e\xff", []any{"\x7f", "\x7f"}, "info",
			`"\\x1b\\x7f\\u202e\\xff","attributes":{"\\x7f":"\\x7f","a":1}}`},
		{slog.LevelError, "x", []any{"b", errors.New("no"), "c", true, "d", []int{1, 2}, "e", time.Second, "f",
			math.Inf(1), "g", 0.5, "rank", 5}, "error",
			`"x","attributes":{"a":1,"b":"no","c":true,"d":[1,2],"e":"1s","f":"+Inf","g":0.5,"rank":5}}`},
	} {
		want := fmt.Sprintf(head, c.name) + c.want + "\n"
		got := says(t, JSON, o, c.level, c.text, c.attributes...)
		if got != want {
			t.Errorf("%q: %s, want %s", c.text, got, want)
		}
		if !json.Valid([]byte(got)) || !IsJSON([]byte(got)) {
			t.Errorf("%q: %s", c.text, got)
		}
	}
	o.HideTime, o.Host = false, "localhost"
	got := says(t, JSON, o, slog.LevelError, "x")
	var line struct {
		Time time.Time
		Host string
	}
	if err := json.Unmarshal([]byte(got), &line); err != nil || time.Since(line.Time).Abs() > time.Hour ||
		line.Time.Location() != time.UTC {
		t.Errorf("%s: %v", got, err)
	}
	if name, err := os.Hostname(); err == nil && line.Host != name {
		t.Errorf("host %s, want %s", line.Host, name)
	}
}

func TestMessage(t *testing.T) {
	if got := Message(slog.LevelWarn, "horovodrun", "two\nlines\x07\n"); got != "horovodrun: two\nlines\\a\n" {
		t.Errorf("%q", got)
	}
	Use(JSON)
	defer Use(Text)
	got := Message(slog.LevelWarn, "horovodrun", "two\nlines\x07\n")
	if !strings.Contains(got, `"level":"warning","program":"horovodrun","rank":null,`) ||
		!strings.Contains(got, `"message":"two\nlines\\a"}`) {
		t.Errorf("%q", got)
	}
}

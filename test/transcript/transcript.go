// Package transcript runs tests that are written as transcripts: commands, and below each its output.
//
//	# A comment.
//	submit m=0 name=x shape=(2,3)
//	further lines, if the command takes any
//	----
//	0: post
//
// A blank line ends the output. If the output itself has blank lines, it is between two lines "----" at each end.
// With the flag -rewrite, the tests write the commands' current output into the files.
package transcript

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what the commands of transcripts print now into the files")

const rule = "----"

// Command is a command with its arguments and the lines below it.
type Command struct {
	Pos   string // file:line
	Cmd   string
	Args  []Arg
	Input string

	want  string
	first int // the line with "----"
	last  int // the line after the output
}

// Arg is an argument: a key alone, key=value or key=(value,value).
type Arg struct {
	Key  string
	Vals []string
}

// Walk runs f in a subtest for each file below dir, named by the file.
func Walk(t *testing.T, dir string, f func(t *testing.T, path string)) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."), strings.HasSuffix(e.Name(), "~"):
			continue
		case e.IsDir():
			t.Run(e.Name(), func(t *testing.T) { Walk(t, path, f) })
		default:
			t.Run(strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())), func(t *testing.T) { f(t, path) })
		}
		ran++
	}
	if ran == 0 {
		t.Fatalf("%s has no transcripts", dir)
	}
}

// Run plays the file at path: it calls f for each command, and compares what f returns with the output in the file.
// It ends at the first difference, because later commands depend on earlier ones.
func Run(t *testing.T, path string, f func(t *testing.T, c *Command) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := play(path, string(text), *rewrite, func(c *Command) string {
		got := f(t, c)
		if t.Failed() {
			c.Fatalf(t, "%s has failed", c.Cmd)
		}
		return got
	})
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// play runs the commands of a text. It returns the text with what f returns now, or the first difference, unless
// any answer is accepted.
func play(path, text string, accept bool, f func(c *Command) string) (string, error) {
	lines := strings.Split(text, "\n")
	commands, err := parse(path, lines)
	if err != nil {
		return "", err
	}
	if len(commands) == 0 {
		return "", fmt.Errorf("%s has no commands", path)
	}
	var fresh []string
	done := 0 // lines that are in fresh
	for _, c := range commands {
		got := f(c)
		if got != "" && !strings.HasSuffix(got, "\n") {
			got += "\n"
		}
		if got != c.want && !accept {
			return "", fmt.Errorf("%s: %s prints\n%s\ninstead of\n%s", c.Pos, c.Cmd, indent(got), indent(c.want))
		}
		fresh = append(append(fresh, lines[done:c.first]...), printed(got)...)
		done = c.last
	}
	return strings.Join(append(fresh, lines[done:]...), "\n"), nil
}

// printed returns the lines of a file for a command's output.
func printed(got string) []string {
	got = strings.TrimSuffix(got, "\n")
	if got == "" {
		return []string{rule}
	}
	lines := strings.Split(got, "\n")
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			return append(append([]string{rule, rule}, lines...), rule, rule)
		}
	}
	return append([]string{rule}, lines...)
}

func indent(text string) string {
	return "\t" + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n\t")
}

// Arg returns the first argument with this key.
func (c *Command) Arg(key string) (Arg, bool) {
	for _, a := range c.Args {
		if a.Key == key {
			return a, true
		}
	}
	return Arg{}, false
}

// HasArg reports whether there is an argument with this key.
func (c *Command) HasArg(key string) bool {
	_, ok := c.Arg(key)
	return ok
}

// ScanArg puts the value of an argument into dest, a pointer to a string or a number. The argument must be there.
func (c *Command) ScanArg(t testing.TB, key string, dest any) {
	t.Helper()
	if !c.MaybeScanArg(t, key, dest) {
		c.Fatalf(t, "%s lacks %s=", c.Cmd, key)
	}
}

// MaybeScanArg is ScanArg of an argument that may be left out. It reports whether it is there.
func (c *Command) MaybeScanArg(t testing.TB, key string, dest any) bool {
	t.Helper()
	a, ok := c.Arg(key)
	if !ok {
		return false
	}
	if len(a.Vals) != 1 {
		c.Fatalf(t, "%s has %d values, want 1", key, len(a.Vals))
	}
	if s, ok := dest.(*string); ok {
		*s = a.Vals[0]
	} else if n, err := fmt.Sscan(a.Vals[0]+" .", dest, new(string)); n != 2 {
		c.Fatalf(t, "%s=%s: %v", key, a.Vals[0], err)
	}
	return true
}

// Fatalf ends the test with a message that names the command.
func (c *Command) Fatalf(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Fatalf("%s: %s", c.Pos, fmt.Sprintf(format, args...))
}

package transcript

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const example = `# Adds and repeats.
add n=(1,2, 30)
----
33

repeat times=2
a line

another
----
----
a line

another
a line

another
----
----

# It prints nothing.
quiet loud=
----
`

// calculate knows the commands of the example.
func calculate(t *testing.T) func(c *Command) string {
	return func(c *Command) string {
		switch c.Cmd {
		case "add":
			sum := 0
			for _, v := range c.Args[0].Vals {
				var n int
				fmt.Sscan(v, &n)
				sum += n
			}
			return fmt.Sprint(sum)
		case "repeat":
			var times int
			c.ScanArg(t, "times", &times)
			return strings.Repeat(c.Input+"\n", times)
		case "quiet":
			loud := "unset"
			if c.MaybeScanArg(t, "loud", &loud); loud != "" || c.HasArg("quiet") {
				t.Errorf("loud is %q", loud)
			}
		}
		return ""
	}
}

func TestTheExamplePasses(t *testing.T) {
	text, err := play("example", example, false, calculate(t))
	if err != nil || text != example {
		t.Errorf("%v: written again, it becomes\n%s", err, text)
	}
}

func TestADifferenceIsFound(t *testing.T) {
	for name, c := range map[string]struct{ old, changed, want string }{
		"another number": {"33", "34", "example:2: add prints\n\t33\ninstead of\n\t34"},
		"too little":     {"33\n", "", "example:2: add prints\n\t33\ninstead of\n\t"},
		"too much": {"quiet loud=\n----\n", "quiet loud=\n----\nword\n",
			"example:22: quiet prints\n\t\ninstead of\n\tword"},
		"a line less": {"another\na line", "a line", "example:6: repeat prints\n\ta line\n\t\n\tanother"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(example, c.old, c.changed, 1)
			_, err := play("example", text, false, calculate(t))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if text, err = play("example", text, true, calculate(t)); err != nil || text != example {
				t.Errorf("%v: rewritten, it becomes\n%s", err, text)
			}
		})
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "has no commands",
		"# comment\n":             "has no commands",
		"add n=1\n":               "f:1: no ---- follows add",
		"add n=(1,(2)\n----\n":    "f:1: n: no ) closes (1,(2)",
		"\nadd =1\n----\n":        "f:2: an argument has no name",
		"add\n----\n----\nmore\n": "f:1: no second double ----",
	} {
		if _, err := play("f", text, false, calculate(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

func TestArguments(t *testing.T) {
	cmd, args, err := parseLine("go  fast at=home with=(a, f(b,c),) none=() =")
	if err == nil {
		t.Errorf("%s %v: no error", cmd, args)
	}
	cmd, args, err = parseLine("go  fast at=home with=(a, f(b,c),) none=()")
	want := []Arg{{"fast", nil}, {"at", []string{"home"}}, {"with", []string{"a", "f(b,c)", ""}},
		{"none", []string{""}}}
	same := func(a, b Arg) bool { return a.Key == b.Key && slices.Equal(a.Vals, b.Vals) }
	if err != nil || cmd != "go" || !slices.EqualFunc(args, want, same) {
		t.Errorf("%s %q, %v; want %q", cmd, args, err, want)
	}
}

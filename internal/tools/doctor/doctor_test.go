package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/config"
)

// row is a variable's line of the table, cut into columns.
func row(t *testing.T, table, name string) []string {
	t.Helper()
	for _, line := range strings.Split(table, "\n") {
		if strings.HasPrefix(line, name+" ") {
			var columns []string
			for _, c := range strings.Split(line, "  ") {
				if c = strings.TrimSpace(c); c != "" {
					columns = append(columns, c)
				}
			}
			return columns
		}
	}
	t.Errorf("no line for %s", name)
	return nil
}

func TestEnv(t *testing.T) {
	var b bytes.Buffer
	err := Env(&b, []string{"HOROVOD_CYCLE_TIME=2.50", "HOROVOD_SECRET_KEY=c0ffeec0ffeec0ffeec0ffeec0ffeec0",
		"HOROVOD_HOSTNAME=a\tb", "HOROVOD_NUM_NCCL_STREAMS=3", "HOROVOD_AUTOTUNE=1", "HOROVOD_FUSION_TRESHOLD=7",
		"GOROVOD_X=", "EDITOR=ed"})
	if err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for name, want := range map[string]string{
		"VARIABLE":                 "VALUE|FROM|CLASS|MEANING",
		"HOROVOD_CYCLE_TIME":       "2.5|environment|implemented|milliseconds",
		"HOROVOD_CACHE_CAPACITY":   "1024|default|implemented|how many",
		"HOROVOD_SECRET_KEY":       "set|environment|implemented|the job's secret",
		"_HOROVOD_SECRET_KEY":      "not set|-|meaningless|",
		"HOROVOD_HOSTNAME":         `"a\tb"|environment|implemented|`,
		"HOROVOD_NUM_NCCL_STREAMS": "3|environment|meaningless|each process set has one stream",
		"HOROVOD_TIMELINE":         "-|-|implemented|",
		"HOROVOD_AUTOTUNE":         "1|environment|implemented|",
		"DDL_OPTIONS":              "-|-|refused|",
		"HOROVOD_START_TIMEOUT":    "-|-|implemented|for horovodrun: ",
	} {
		if columns := row(t, out, name); len(columns) > 0 {
			if got := strings.Join(columns[1:], "|"); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
	table, rest, _ := strings.Cut(out, "\n\n")
	lines := strings.Split(table, "\n")
	if len(lines) != len(config.Knobs)+1 {
		t.Errorf("%d lines for %d variables and a heading", len(lines), len(config.Knobs))
	}
	column := strings.Index(lines[0], "VALUE")
	for _, line := range lines {
		if len(line) <= column || line[column-1] != ' ' || line[column] == ' ' {
			t.Errorf("not aligned: %s", line)
		}
	}
	if want := `Note:
  "GOROVOD_X" is no variable of gorovod or Horovod, and has no effect
  "HOROVOD_FUSION_TRESHOLD" is no variable of gorovod or Horovod, and has no effect: did you mean HOROVOD_FUSION_THRESHOLD?
`; rest != want {
		t.Errorf("after the table: %s", rest)
	}
	if strings.Contains(out, "c0ffee") || strings.Contains(out, "EDITOR") {
		t.Error("it prints what it should not")
	}
	if !strings.Contains(strings.Join(row(t, out, "GOROVOD_TRANSPORT"), " "), "(rank 0's value counts)") {
		t.Error("it does not say that rank 0's transport counts")
	}
}

func TestUnusableEnv(t *testing.T) {
	var b bytes.Buffer
	err := Env(&b, []string{"HOROVOD_RANK=x", "HOROVOD_CPU_OPERATIONS=ccl", "HOROVOD_SECRET_KEY=hunter2",
		"GOROVOD_WITHOUT_PATCHES=excepthook, nosuch", "HOROVOD_START_TIMEOUT=soon", "HOROVOD_ELASTIC_TIMEOUT=0",
		"GOROVOD_ELASTIC_BLACKLIST=rack"})
	if !errors.Is(err, errUnusable) {
		t.Errorf("error %v", err)
	}
	_, rest, _ := strings.Cut(b.String(), "\n\n")
	for _, want := range []string{"Wrong:\n", "\n  HOROVOD_RANK=x: a whole number",
		"\n  HOROVOD_CPU_OPERATIONS=ccl: there is no oneCCL backend",
		"\n  HOROVOD_SECRET_KEY: it is not hexadecimal\n",
		"\n  GOROVOD_WITHOUT_PATCHES=excepthook, nosuch: there is no nosuch; the patches are excepthook, ",
		"\n  HOROVOD_START_TIMEOUT=soon: a whole number of seconds from 1 to ",
		"\n  HOROVOD_ELASTIC_TIMEOUT=0: a whole number of seconds from 1 to ",
		"\n  GOROVOD_ELASTIC_BLACKLIST=rack: slot or host is needed\n"} {
		if !strings.Contains(rest, want) {
			t.Errorf("no %q in %s", want, rest)
		}
	}
	if strings.Contains(b.String(), "hunter2") {
		t.Error("it prints the secret")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// examined replaces the examination of hosts.
func examined(c Cluster, w io.Writer) error {
	port := "-"
	if c.SSHPort != nil {
		port = strconv.Itoa(*c.SSHPort)
	}
	fmt.Fprintf(w, "examined {%s %s, port %s, %d %s %v}\n", c.Hosts, c.Hostfile, port, *c.StartTimeout, c.Python,
		c.NoPairs)
	for _, odd := range c.Variables.Odd {
		fmt.Fprintln(w, "odd:", odd)
	}
	if c.Variables.Wrong != nil {
		fmt.Fprintln(w, "wrong:", c.Variables.Wrong)
		return ErrUnwell
	}
	switch c.Hosts {
	case "unwell:1":
		return ErrUnwell
	case "broken:1":
		return errors.New("no such thing")
	}
	return nil
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args       string
		env        string
		code       int
		out, error string
	}{
		{"--env", "A=1", 0, "VARIABLE", ""},
		{"--env", "HOROVOD_SIZE=2", 1, "Wrong:", "gorovod doctor: with this environment no job starts"},
		{"--help", "", 0, "--env", ""},
		{"", "GOROVOD_GPU=of", 1, "wrong: GOROVOD_GPU=of: auto, nccl, staged or off", ""},
		{"", "HOROVOD_RANK=x", 0, "examined {", ""}, // the launcher sets another one
		{"", "HOROVOD_FUSION_TRESHOLD=1", 0, `odd: "HOROVOD_FUSION_TRESHOLD" is no variable of gorovod or Horovod, and ` +
			"has no effect: did you mean HOROVOD_FUSION_THRESHOLD?", ""},
		{"", "", 0, "examined { , port -, 30 python3 false}", ""},
		{"-H a:1 -p 22 --python p --no-pairs", "", 0, "examined {a:1 , port 22, 30 p true}", ""},
		{"-H unwell:1", "", 1, "examined", ""},
		{"-H broken:1", "", 1, "examined", "no such thing"},
		{"-H a:1 --hostfile f", "", 2, "", "can't be used together"},
		{"--start-timeout 0", "", 2, "", "--start-timeout 0"},
		{"--gpu -H a:1", "", 2, "", "can't be used together"},
		{"--gpu --no-pairs", "", 2, "", "can't be used together"},
		{"--gpu --start-timeout 9", "", 2, "", "can't be used together"},
		{"--gpu -p 22", "", 2, "", "can't be used together"},
		{"--gpu -i f", "", 2, "", "can't be used together"},
		{"--gpu --remote-command c", "", 2, "", "can't be used together"},
		{"--env --no-pairs", "", 2, "", "can't be used together"},
		{"-H a:1 --start-timeout 9 --no-pairs -p 7 -i f --remote-command c", "", 0, "examined {a:1 , port 7, 9", ""},
		{"--nonsense", "", 2, "", "--nonsense"},
		{"--env more", "", 2, "", "more"},
		{"--dump 0", "", 1, "", "--dump 0: it is no process id"},
		{"--dump +7", "", 1, "", "--dump +7: it is no process id"},
		{"--dump 4194304", "", 1, "", "there is no process 4194304 on this host"},
		{"--dump 99999999999999999999", "", 1, "", "neither a process id nor a directory"},
		{"--dump /dev/null", "", 1, "", "it is a file"},
		{"--dump /no/such", "", 1, "", "neither a process id nor a directory"},
		{"--fr-trace x", "", 2, "", "--fr-trace needs --dump"},
		{"--dump=", "", 2, "", "an argument is empty"},
	} {
		var stdout, stderr bytes.Buffer
		code := Main("gorovod doctor", strings.Fields(c.args), []string{c.env}, &stdout, &stderr, examined)
		if code != c.code || !strings.Contains(stdout.String(), c.out) || !strings.Contains(stderr.String(), c.error) ||
			(c.error == "") != (stderr.Len() == 0) {
			t.Errorf("%q: code %d, stdout %.60q, stderr %q", c.args, code, stdout.String(), stderr.String())
		}
	}
	var stderr bytes.Buffer
	if code := Main("d", []string{"--env"}, nil, broken{}, &stderr, examined); code != 1 ||
		!strings.Contains(stderr.String(), "no space left") {
		t.Errorf("code %d, %s", code, stderr.String())
	}
}

package commandline

import (
	"strings"
	"testing"
)

// grammar has every kind of option that a table can have.
type grammar struct {
	Version     bool   `short:"v"`
	Verbose     bool   `group:"Talk" help:"Say more."`
	NumProc     int    `onedash:"np" aliases:"np" placeholder:"N" help:"Number of processes, of which there may be as many as anyone could ever want to have."`
	Port        int    `short:"p" placeholder:"PORT"`
	Hostfile    string `onedash:"hostfile" placeholder:"FILE"`
	PrefixTime  bool   `onedash:"prefix-time" name:"prefix-with-time" aliases:"prefix-time"`
	Cache       *bool  `negatable:""`
	LogTime     *bool  `negatable:"log-bare"`
	Level       string `placeholder:"LEVEL" words:"LOW,HIGH"`
	Range       []int  `placeholder:"MIN MAX" sep:","`
	ResetLimit  int    `placeholder:"N"`
	Remote      string `own:"" placeholder:"DIR"`
	RemoteShell string `own:"" placeholder:"COMMAND"`
	Export      string `own:"" short:"x" placeholder:"NAME"`
	Secret      string `hidden:""`
}

var sample = &Command{Name: "run", Usage: "-np N command…", About: "Run", Detail: "It runs.\n\n.Dots are no requests.",
	Grammar: func() any { return &grammar{} }, Runs: true, Examples: []Example{{"horovodrun -np 2 true", "Two."}}}

func TestExpand(t *testing.T) {
	table := sample.Options().With("--old-name")
	for short, want := range map[string]string{
		"--verb":        "--verbose",
		"--verbose":     "--verbose",
		"--ver":         "ambiguous: it could mean --version, --verbose",
		"--num=3":       "--num-proc=3",
		"-np":           "--num-proc",
		"-np=3":         "--num-proc=3",
		"-n":            "--num-proc",
		"--np":          "--np",
		"-np4":          "unknown option -np4: write -np 4",
		"-p":            "-p",
		"-p22":          "-p22",
		"-p=22":         "-p=22",
		"-prefix":       "ambiguous: it could mean -p, -prefix-time",
		"-prefix-time":  "--prefix-with-time",
		"-hostf":        "ambiguous: it could mean -h, -hostfile",
		"-hostfile":     "--hostfile",
		"-xA=b":         "-xA=b",
		"--no-c":        "--no-cache",
		"--no":          "--no-cache",
		"--log":         "ambiguous: it could mean --log-time, --log-bare",
		"--log-b":       "--log-bare",
		"--re":          "--reset-limit", // the only one of Horovod's options
		"--rem":         "ambiguous: it could mean --remote, --remote-shell",
		"--remote":      "--remote",
		"--remote-":     "--remote-shell",
		"--old":         "--old-name",
		"--secret":      "--secret",
		"--sec":         "unknown option --sec",
		"--vrebose":     "unknown option --vrebose, did you mean --verbose?",
		"--cahce=1":     "unknown option --cahce, did you mean --cache?",
		"--nonsense":    "unknown option --nonsense",
		"-q":            "unknown option -q",
		"--":            "--",
		"-":             "-",
		"":              "",
		"command":       "command",
		"--verb\x1b[0m": `unknown option "--verb\x1b[0m"`,
	} {
		got, err := table.Expand(short)
		switch {
		case err == nil && got != want:
			t.Errorf("%s: %s, want %s", short, got, want)
		case err != nil && (!strings.Contains(want, " ") || !strings.Contains(err.Error(), want) ||
			want == "unknown option "+short && strings.Contains(err.Error(), "mean")):
			t.Errorf("%s: %v, want %s", short, err, want)
		}
	}
}

// Parse never reads a value as an option, and prints help whenever it is asked for.
func TestParse(t *testing.T) {
	var g grammar
	help, err := sample.Parse("gorovod run", &g, strings.Fields("--lev --ver -np 3 --ran 1,2"))
	if err == nil || help != "" {
		t.Errorf("%q %v", help, err)
	}
	g = grammar{}
	if help, err = sample.Parse("gorovod run", &g,
		strings.Fields("--verb --num 3 --lev HIGH -x --ver -p 4")); err == nil {
		t.Errorf("%q %v: a value like an option", help, err)
	}
	g = grammar{}
	if help, err = sample.Parse("gorovod run", &g, strings.Fields("--verb -n 3 --lev=--ver -p4")); err != nil ||
		help != "" || !g.Verbose || g.NumProc != 3 || g.Level != "--ver" || g.Port != 4 {
		t.Errorf("%q %v %+v", help, err, g)
	}
	help, err = sample.Parse("gorovod run", &g, []string{"--he"})
	for _, part := range []string{"usage: gorovod run -np N command…\n\nRun.\n\nIt runs.\n",
		"\nExamples:\n  gorovod run -np 2 true\n      Two.\n", "\n  -np, --num-proc N             Number of " +
			"processes, of which there may be as\n                                many as anyone could ever " +
			"want to have.\n",
		"\n  --[no-]cache\n", "\n  --log-time, --log-bare\n", "\nTalk:\n  --verbose                     Say more.\n"} {
		if err != nil || !strings.Contains(help, part) {
			t.Errorf("no %q in %s", part, help)
		}
	}
	if strings.Contains(help, "secret") {
		t.Error("it tells secrets")
	}
}

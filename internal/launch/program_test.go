package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
)

// argparse has the options of Horovod's launcher in Python's own parser. For each prefix of each option it prints the
// option that the parser finds; nothing if there is none.
const argparse = `
import argparse, json, sys
parser = argparse.ArgumentParser()
for names in json.loads(sys.argv[1]):
    if names[0] != "-h":
        parser.add_argument(*names, action="store_true", dest=names[0])
found = {}
names = [name for name in parser._option_string_actions]
for name in names:
    for end in range(2, len(name) + 1):
        short = name[:end]
        if short == "--":
            continue
        matches = [short] if short in names else [match[1] for match in parser._get_option_tuples(short)]
        found[short] = matches
print(json.dumps(found))
`

// A prefix that is unique for Horovod's parser means the same here. A prefix that is ambiguous there is ambiguous here,
// unless all its candidates are one option here.
func TestPrefixesAreThoseOfArgparse(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	var horovods [][]string
	for _, o := range flags.Spellings() {
		if o.Own || o.Hidden {
			continue
		}
		var names []string
		for _, name := range o.Names {
			if !slices.Contains(o.Names, name[1:]) || name == "--hostfile" { // only we have --np beside -np
				names = append(names, name)
			}
		}
		horovods = append(horovods, names)
		if o.Off != "" {
			horovods = append(horovods, []string{o.Off})
		}
	}
	list, _ := json.Marshal(horovods)
	out, err := exec.Command(python, "-c", argparse, string(list)).CombinedOutput()
	var found map[string][]string
	if err != nil || json.Unmarshal(out, &found) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(found) < 500 {
		t.Errorf("only %d abbreviations", len(found))
	}
	table := flags.Spellings()
	for short, matches := range found {
		full, err := table.Expand(short)
		if err != nil {
			if len(matches) == 1 {
				t.Errorf("%s: %v; argparse takes it for %s", short, err, matches[0])
			}
			continue
		}
		meant := table.Find(full)
		for _, m := range matches {
			if o := table.Find(m); o == nil || o != meant || (o.Off == m) != (o.Off == full) {
				t.Errorf("%s is taken for %s; argparse has %q", short, full, matches)
			}
		}
	}
}

func TestAbbreviations(t *testing.T) {
	f, err := flags.Parse("horovodrun", strings.Fields("-n 2 --verb --fus 3 --no-auto --network-interface lo --min-n "+
		"1 --re 4 python --verb"))
	if err != nil {
		t.Fatal(err)
	}
	if f.NumProc != 2 || !f.Verbose || *f.FusionThresholdMB != 3 || *f.Autotune || f.NetworkInterfaces[0] != "lo" ||
		*f.MinNP != 1 || *f.ResetLimit != 4 || len(f.Command) != 2 {
		t.Errorf("%+v", f)
	}
	for args, says := range map[string]string{
		"--ver":             "--ver is ambiguous: it could mean --version, --verbose",
		"--tor --no-tor":    "--torus-allreduce and --no-torus-allreduce: one of them",
		"--log-h":           "", // an old name
		"--js":              "--jsrun is not supported",
		"--fus":             "--fus: a value is missing",
		"--vrebose":         "did you mean --verbose?",
		"--input-nothing":   "unknown option",
		"--inp f":           "unknown option --inp", // users cannot see hidden options
		"--cycle-tmie-ms 1": "did you mean --cycle-time-ms?",
	} {
		f, err := flags.Parse("horovodrun", append([]string{"-np", "2"}, strings.Fields(args)...))
		if says == "" {
			if !strings.Contains(err.Error(), "no command") || f == nil || f.LogTime == nil || *f.LogTime {
				t.Errorf("%s: %v", args, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", args, err, says)
		}
	}
}

// as runs the program by a name.
func as(t *testing.T, env []string, command ...string) (stdout, stderr string, code int) {
	t.Helper()
	l := launched(t, env)
	l.Args = command
	var out, errs strings.Builder
	l.Stdout, l.Stderr = &out, &errs
	l.Run()
	return out.String(), errs.String(), l.ProcessState.ExitCode()
}

func TestMisspeltCommands(t *testing.T) {
	for args, says := range map[string]string{
		"dcotor":            `unknown command "dcotor", did you mean doctor?`,
		"-np 2 true":        "-np: a command comes first: to start a job, write gorovod run -np",
		"completion":        "for which shell? bash, zsh or fish is needed",
		"completion tcsh":   `no completion for "tcsh"`,
		"man horovodrn":     `no page "horovodrn": gorovod or horovodrun`,
		"doctor --hosst a":  "did you mean --hosts?",
		"bench --quikc":     "did you mean --quick?",
		"rendezvous --lsn":  "unknown option --lsn",
		"run -np 2 --vrbos": "did you mean --verbose?",
	} {
		out, errs, code := as(t, nil, append([]string{"gorovod"}, strings.Fields(args)...)...)
		if code != ending.UsageCode || out != "" || !strings.HasPrefix(errs, "gorovod") ||
			!strings.Contains(errs, says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: code %d, %q, want %q", args, code, errs, says)
		}
	}
	out, _, code := as(t, nil, "gorovod", "--help")
	for _, c := range gorovod().Commands {
		if code != 0 || !strings.Contains(out, "\n  "+c.Name) || !strings.Contains(out, c.About) {
			t.Errorf("--help does not tell of %s", c.Name)
		}
		for _, o := range c.Options() {
			if o.Help == "" && !o.Hidden {
				t.Errorf("%s: nothing is said of %s", c.Name, o.Names)
			}
		}
	}
}

// The frameworks are those that the job's Python can import.
func TestCheckBuild(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, module := range []string{"horovod", "tensorflow"} {
		os.Mkdir(filepath.Join(dir, module), 0o700)
		os.WriteFile(filepath.Join(dir, module, "__init__.py"), nil, 0o600)
	}
	os.MkdirAll(filepath.Join(dir, "bin", "torch"), 0o700) // a directory that is no package
	alone := fmt.Sprintf("#!/bin/sh\nPYTHONPATH=%s exec %s -S \"$@\"\n", dir, python)
	os.WriteFile(filepath.Join(dir, "bin", "python3"), []byte(alone), 0o700)
	empty := fmt.Sprintf("#!/bin/sh\nexec %s -S -E \"$@\"\n", python)
	os.WriteFile(filepath.Join(dir, "bin", "python-empty"), []byte(empty), 0o700)
	t.Chdir(filepath.Join(dir, "bin"))
	env := []string{"PATH=" + dir + "/bin:" + os.Getenv("PATH"), "PYTHONPATH="}
	out, errs, code := as(t, env, "horovodrun", "--check-build")
	if code != 0 || !strings.Contains(out, "    [X] TensorFlow\n    [ ] PyTorch\n    [ ] MXNet\n") ||
		!strings.Contains(errs, "those of "+dir+"/bin/python3 (Python ") || strings.Contains(errs, "no horovod") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	out, errs, _ = as(t, env, "horovodrun", "-cb", "./python-empty", "train.py")
	if !strings.Contains(out, "    [ ] TensorFlow\n    [ ] PyTorch\n") || !strings.Contains(errs,
		"has no horovod package") {
		t.Errorf("%s%s", out, errs)
	}
	// the job's Python tells what its processes could use of NCCL, whose library may end it
	library := filepath.Join(dir, "horovod", "common", "_lib.py")
	os.MkdirAll(filepath.Dir(library), 0o700)
	for does, says := range map[string][2]string{
		"return 21805":             {"    [X] NCCL\n", ""},
		"return 0":                 {"    [ ] NCCL\n", ""},
		"1/0":                      {"    [ ] NCCL\n", "cannot be asked for NCCL (ZeroDivisionError("},
		"import os; os._exit(3)":   {"    [ ] NCCL\n", "the Python that was asked for NCCL has ended (exit status 3)"},
		"import os; os.kill(0, 9)": {"    [ ] NCCL\n", "has ended (signal: killed) (gorovod doctor --gpu says more)"},
	} {
		os.WriteFile(library, []byte("class load:\n def gorovod_usable_nccl(self, calls): "+does+"\n"), 0o600)
		out, errs, _ := as(t, env, "horovodrun", "--check-build")
		if !strings.Contains(out, says[0]) || !strings.Contains(out, "[X] TensorFlow") ||
			!strings.Contains(errs, says[1]) {
			t.Errorf("NCCL %s: %s%s", does, out, errs)
		}
		os.RemoveAll(filepath.Join(filepath.Dir(library), "__pycache__"))
	}
	// a program that the user names, and that cannot answer
	os.WriteFile("python-mute", []byte("#!/bin/sh\n"), 0o700)
	os.WriteFile("python-loud", []byte("#!/bin/sh\nhead -c 3000000 /dev/zero; exit 3\n"), 0o700)
	for command, says := range map[string]string{"./python-mute": "has not answered as a Python does",
		"./python-loud": ": it has ended (exit status 3)", "/no/such/python": "/no/such/python"} {
		out, errs, code := as(t, env, "horovodrun", "--check-build", command)
		if code != 1 || out != "" || !strings.Contains(errs, "--check-build: ") || !strings.Contains(errs, says) {
			t.Errorf("%s: code %d: %s%s", command, code, out, errs)
		}
	}
	out, errs, code = as(t, []string{"PATH=/nowhere"}, "horovodrun", "--check-build")
	if code != 0 || !strings.Contains(out, "    [ ] TensorFlow\n    [ ] PyTorch\n") || !strings.Contains(errs,
		"no Python called python3 or python") {
		t.Errorf("%s%s", out, errs)
	}
}

// Lines that a user may have typed, each with a part of the shell's offers; "" for none.
var completions = []struct{ line, offer string }{
	{"gorovod ", "doctor"},
	{"gorovod do", "doctor"},
	{"horovodrun --verb", "--verbose"},
	{"horovodrun -np 2 --log-level ", "DEBUG"},
	{"horovodrun --log-level=D", "DEBUG"},
	{"horovodrun --config-file da", "data.yaml"},
	{"horovodrun -np 2 --output-filename fol", "folder"},
	{"horovodrun -H a:2,b:2 --blacklist-cooldown-range 1 2 --autotune-s", "--autotune-steps-per-sample"},
	{"horovodrun --hosts=a:2,b:2 -np=4 --no-auto", "--no-autotune"},
	{"horovodrun -np 2 mkfif", "mkfifo"},
	{"horovodrun -np 2 cat da", "data.yaml"},
	{"gorovod run -np 2 --grace", "--grace-period"},
	{"gorovod doctor --dump fol", "folder"},
	{"gorovod bench --peers ", "openmpi"},
	{"gorovod completion z", "zsh"},
	{"gorovod man h", "horovodrun"},
	{"horovodrun -np ", ""},
	{"horovodrun --lifel", ""},
	{"gorovod bench ", ""},
}

// A shell program that prints the offers of the completion in file $1 for the line $2. Bash's sets the variables that
// bash sets; bash also cuts words at = and :.
const bashTry = `
source "$1"
COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDS=()
rest=$2
while [[ -n $rest ]]; do
  trimmed=${rest#"${rest%%[! ]*}"}
  case $trimmed in
    "") word="" ;;
    [=:]*) word=${trimmed:0:1} ;;
    *) word=${trimmed%%[=: ]*} ;;
  esac
  COMP_WORDS+=("$word")
  rest=${trimmed#"$word"}
done
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; }
_gorovod
printf '%s\n' "${COMPREPLY[@]}"
`

const fishTry = `source $argv[1]; complete -C "$argv[2]"`

// zshTry types lines into a shell at a terminal, and waits for each offer. Its arguments are the file, then line and
// offer by turns.
const zshTry = `
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1=; unsetopt zle_bracketed_paste; LISTMAX=0; autoload -U compinit; compinit -u -D; source $1; cd $PWD; print rea''dy"
zpty -r z said '*ready*'
shift
for line offer; do
  zpty -w -n z "$line"$'\t\t'
  zpty -r z said "*$offer*"
  print -r -- "$line: $offer"
  zpty -w z $'\x15'"print ne''xt"
  zpty -r z said '*next*'
done
zpty -d z
`

func TestCompletion(t *testing.T) {
	for shell, try := range map[string][]string{"bash": {"-c", bashTry, "bash"}, "fish": {"-N", "-c", fishTry}} {
		t.Run(shell, func(t *testing.T) {
			for _, c := range completions {
				said := typed(t, shell, try, c.line)
				if !strings.Contains(said, c.offer) || c.offer == "" && strings.TrimSpace(said) != "" {
					t.Errorf("%q: %q, want %q", c.line, said, c.offer)
				}
			}
		})
	}
	t.Run("zsh", func(t *testing.T) {
		var lines []string
		for _, c := range completions {
			if c.offer != "" { // no offer: nothing to wait for
				lines = append(lines, c.line, c.offer)
			}
		}
		typed(t, "zsh", []string{"-f", "-c", zshTry, "zsh"}, lines...)
	})
}

// typed lets a shell complete lines in a directory of its own.
func typed(t *testing.T, shell string, try []string, lines ...string) string {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Skipf("%s is not installed (Debian: %[1]s)", shell)
	}
	script, err := gorovod().Completion(shell)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "completion")
	os.WriteFile(file, []byte(script), 0o600)
	os.Mkdir(filepath.Join(dir, "folder"), 0o700)
	os.WriteFile(filepath.Join(dir, "data.yaml"), nil, 0o600)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell, slices.Concat(try, []string{file}, lines)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), "HOME="+dir, "TERM=dumb"), time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", shell, err, out)
	}
	return string(out)
}

// groff does not complain about the pages.
func TestManPages(t *testing.T) {
	for _, name := range []string{"", "gorovod", "horovodrun"} {
		page, err := gorovod().Man(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{".SH NAME\n", ".SH SYNOPSIS\n", `\-np, \-\-num\-proc N`, `\-\-[no\-]autotune`,
			".SH \"EXIT STATUS\"\n", "horovodrun \\-np 4 python train.py"} {
			if !strings.Contains(page, part) && !(strings.HasPrefix(part, "horovodrun") && name != "horovodrun") {
				t.Errorf("%s: no %q", name, part)
			}
		}
		if strings.Contains(page, `\-\-lifeline`) {
			t.Error("it tells of what is hidden")
		}
		if _, err := exec.LookPath("groff"); err != nil {
			continue
		}
		cmd := exec.Command("groff", "-ww", "-man", "-Tascii")
		cmd.Stdin = strings.NewReader(page)
		var complaints strings.Builder
		cmd.Stderr = &complaints
		if text, err := cmd.Output(); err != nil || complaints.Len() > 0 || !strings.Contains(string(text),
			"Number of processes.") {
			t.Errorf("%s: %v: %s", name, err, &complaints)
		}
	}
}

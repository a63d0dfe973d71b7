package environment

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/test/transcript"
)

func lookup(input string) func(string) (string, bool) {
	m := map[string]string{}
	for _, line := range strings.Split(input, "\n") {
		if name, value, ok := strings.Cut(line, "="); ok {
			m[name] = value
		}
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

// Environments of processes, most of them recorded from real launchers, and the places that Find returns for them.
// "kept" lists the variables that a program that starts another job passes on.
func TestTranscripts(t *testing.T) {
	transcript.Walk(t, "testdata", func(t *testing.T, path string) {
		transcript.Run(t, path, func(t *testing.T, d *transcript.Command) string {
			switch d.Cmd {
			case "find":
				p, err := Find(lookup(d.Input))
				if err != nil {
					return "error: " + err.Error()
				}
				return p.describe()
			case "kept":
				inherited := Inherited(lookup(d.Input))
				var kept []string
				for _, line := range strings.Split(d.Input, "\n") {
					if name, _, _ := strings.Cut(line, "="); !inherited(name) {
						kept = append(kept, name)
					}
				}
				return strings.Join(kept, " ")
			}
			return "unknown command " + d.Cmd
		})
	})
}

func (p Place) describe() string {
	switch p.Launcher {
	case Nobody:
		return fmt.Sprintf("alone: %d of %d, local %d/%d, cross %d/%d", p.Rank, p.Size, p.LocalRank, p.LocalSize,
			p.CrossRank, p.CrossSize)
	case Horovodrun:
		return string(Horovodrun)
	}
	text := fmt.Sprintf("%s: %d of %d, local %d/%d, cross %d/%d", p.Launcher, p.Rank, p.Size, p.LocalRank, p.LocalSize,
		p.CrossRank, p.CrossSize)
	for _, f := range [][2]string{{"host", p.Host}, {"job", p.Job}, {"head", p.Head}, {"PMI", p.PMI}, {"PMIx", p.PMIx},
		{"nodes", strings.Join(p.Nodes, " ")}} {
		if f[1] != "" {
			text += fmt.Sprintf("\n%s %q", f[0], f[1])
		}
	}
	return text
}

func TestHostNames(t *testing.T) {
	for list, want := range map[string]string{"node[08-10,12],gpu1": "node08 node09 node10 node12 gpu1", "n1": "n1",
		"n1,n2": "n1 n2", "a[1]": "a1", "a[1,3]": "a1 a3",
		"a[9-11],b": "a9 a10 a11 b", "": "", "a[x]": "", "a[1-2]b": "", "[1-2]": "", "n1,a[2-1],n3": "n1",
		"a[1-9999999]": "", "n1,r[0-1]n[2-3]": "n1", "a[1-2-3]": "", "a[1,,2]": "a1"} {
		if got := strings.Join(hostNames(list), " "); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}

// Find returns for any variables.
func FuzzFind(f *testing.F) {
	f.Add("SLURM_STEP_ID=0\nSLURM_PROCID=1\nSLURM_NTASKS=2\nSLURM_NODEID=0\nSLURM_TASKS_PER_NODE=1(x2)")
	f.Add("RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=a\nMASTER_PORT=1\nGROUP_RANK=9\nLOCAL_WORLD_SIZE=1")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Find(lookup(text))
		if err == nil && p.Launcher != Horovodrun && (p.Rank < 0 || p.Rank >= p.Size || p.LocalSize > p.Size ||
			p.CrossSize > 0 && p.CrossRank >= p.CrossSize) {
			t.Errorf("%q: %+v", text, p)
		}
	})
}

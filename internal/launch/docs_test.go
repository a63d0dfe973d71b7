package launch

import (
	"flag"
	"os"
	"strings"
	"testing"
)

//go:generate go test -run TestCommandLineReference -update-docs

var updateDocs = flag.Bool("update-docs", false, "rewrite docs/command-line.md")

const commandLineIntro = `<!-- Generated from the tables of options by go generate ./internal/launch; do not edit. -->
# Command line

What each command's ` + "`--help`" + ` says, on one page. ` + "`man gorovod`" + ` and ` + "`man horovodrun`" + ` have the same.
[Exit codes](errors.md#exit-codes-of-horovodrun) and [environment variables](knobs.md) have pages of their own.
`

// docs/command-line.md agrees with the tables of options.
func TestCommandLineReference(t *testing.T) {
	const file = "../../docs/command-line.md"
	want := commandLineIntro + gorovod().Markdown()
	if *updateDocs {
		if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/command-line.md is not what the options are; rewrite it with: go generate ./internal/launch")
	}
}

// Every command prints its help when asked, without anything else that it needs.
func TestEveryCommandHasHelp(t *testing.T) {
	for _, c := range gorovod().Commands {
		help, err := c.Parse("gorovod "+c.Name, c.Grammar(), []string{"--help"})
		if err != nil || !strings.HasPrefix(help, "usage: gorovod "+c.Name) {
			t.Errorf("gorovod %s --help prints %q, error %v", c.Name, help, err)
		}
	}
}

// Every option says its default and the unit of its value, unless it only prints something or has no effect.
func TestEveryOptionSaysItsDefaultAndUnit(t *testing.T) {
	units := map[string]string{"SECONDS": "econds", "MS": "illiseconds", "MIB": "MiB", "MIN MAX": "econds"}
	for _, c := range gorovod().Commands {
		for _, o := range c.Options() {
			prints := strings.HasPrefix(o.Help, "Print ") || strings.HasPrefix(o.Help, "Show this help")
			if o.Hidden || strings.HasPrefix(o.Help, "No effect") || o.Value == "" && prints {
				continue
			}
			if !strings.Contains(o.Help, "Default: ") && !strings.HasSuffix(o.Help, " Required.") {
				t.Errorf("gorovod %s %s does not say its default: %s", c.Name, o.Names, o.Help)
			}
			if unit := units[o.Value]; !strings.Contains(o.Help, unit) {
				t.Errorf("gorovod %s %s does not say its unit, %q: %s", c.Name, o.Names, unit, o.Help)
			}
		}
	}
}

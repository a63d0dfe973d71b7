package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/knobs.md")

const docsFile = "../../docs/knobs.md"

// docs/knobs.md is the table.
func TestDocs(t *testing.T) {
	want := docs()
	if *update {
		if err := os.WriteFile(docsFile, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/knobs.md is not what the table says; rewrite it with: go generate ./internal/config")
	}
}

func docs() string {
	var b strings.Builder
	b.WriteString(`<!-- Generated from the table in internal/config by go generate; do not edit. -->
# Knobs

Every environment variable of gorovod and of Horovod, and what becomes of it. ` + "`horovodrun`" + ` hands the environment on to the
ranks. A variable that is empty counts as not set, a value that makes no sense is an error of ` + "`hvd.init()`" + `, and the names that
begin with GOROVOD_ do not exist in Horovod. ` + "`gorovod doctor --env`" + ` prints this table with the values in force.

` + "```sh" + `
GOROVOD_TRANSPORT=tcp HOROVOD_LOG_LEVEL=debug horovodrun -np 4 python train.py
` + "```" + `

Flags are 1 or 0. As in Horovod, text that is not a number counts as 0, so ` + "`true`" + ` turns nothing on; it is reported.
What must be the same on all ranks is taken from rank 0, and differences are reported.
`)
	values := func(heading string, in section) {
		fmt.Fprintf(&b, "\n## %s\n\n| variable | default | whose value counts | meaning |\n|---|---|---|---|\n", heading)
		for _, k := range implemented {
			if k.section != in {
				continue
			}
			whose := "each rank's"
			if k.Agreed {
				whose = "rank 0's"
			}
			def := "none"
			if d := k.Default(); d != "" {
				def = "`" + d + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, def, whose, k.Doc)
		}
	}
	values("Operations", tuning)
	values("Reports", reports)

	b.WriteString("\n## Set by horovodrun\n\nFor each rank; set them yourself only if you start ranks by other means.\n\n| variable | default | meaning |\n|---|---|---|\n")
	for _, k := range implemented {
		if k.section == placement {
			def := "none"
			if d := k.Default(); d != "" {
				def = "`" + d + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Name, def, k.Doc)
		}
	}

	b.WriteString("\n## Read by the launcher and by Python\n\n| variable | for | meaning |\n|---|---|---|\n")
	for _, k := range implemented {
		if k.section == elsewhere {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Name, k.By, k.Doc)
		}
	}

	reasons := func(heading, text string, class Class) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| variables | why |\n|---|---|\n", heading, text)
		var names []string
		for i, k := range foreign {
			if k.Class != class {
				continue
			}
			names = append(names, "`"+k.Name+"`")
			if i+1 == len(foreign) || foreign[i+1].Doc != k.Doc {
				fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(names, ", "), k.Doc)
				names = nil
			}
		}
	}
	reasons("Refused", "`hvd.init()` fails if one of these asks for something.", Refused)
	reasons("Without meaning here", "Accepted, whatever the value, since there is nothing that they could change.", Meaningless)
	return b.String()
}

package config

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/knobs.md")

const docsFile = "../../../docs/knobs.md"

// docs/knobs.md agrees with the table.
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
		t.Error("docs/knobs.md is not what the table says; rewrite it with: go generate ./internal/base/config")
	}
}

// A cell is short enough to read at a glance; details have a section of their own.
func TestCellsAreShort(t *testing.T) {
	for _, k := range implemented {
		if n := len(k.Doc); n > 200 {
			t.Errorf("%s: %d characters are too many for a cell: move some into details", k.Name, n)
		}
	}
	for _, d := range details() {
		if knob(d.name) == nil || d.about == "" || d.costs == "" || d.touch == "" {
			t.Errorf("testdata/details.md: %s has no variable or lacks something", d.name)
		}
	}
}

// detail is testdata/details.md's text about a variable.
type detail struct{ name, about, costs, touch string }

var details = sync.OnceValue(func() (all []detail) {
	text, err := os.ReadFile("testdata/details.md")
	if err != nil {
		panic(err)
	}
	for _, section := range strings.Split(string(text), "\n### ")[1:] {
		name, rest, _ := strings.Cut(section, "\n\n")
		about, rest, _ := strings.Cut(rest, "\n\nCosts: ")
		costs, touch, _ := strings.Cut(rest, "\n\nChange it: ")
		all = append(all, detail{name, about, line(costs), line(touch)})
	}
	return all
})

// line joins the lines of a paragraph, for a cell.
func line(paragraph string) string { return strings.Join(strings.Fields(paragraph), " ") }

const docsIntro = `<!-- Generated from the table in internal/base/config by go generate; do not edit. -->
# Variables

Every environment variable of gorovod and of Horovod, and what becomes of it.

` + "```sh" + `
GOROVOD_TRANSPORT=tcp HOROVOD_LOG_LEVEL=debug horovodrun -np 4 python train.py
gorovod doctor --env    # all variables, with the values in force
` + "```" + `

- ` + "`horovodrun`" + ` hands its environment on to the ranks. ` + "`-x NAME=VALUE`" + ` adds a variable.
- A variable that is empty counts as not set. A value that makes no sense is an error of ` + "`hvd.init()`" + `.
- ` + "`horovodrun`" + `, or rank 0 under other launchers, warns of a misspelt name and says which one was perhaps meant.
- Flags are 1 or 0. As in Horovod, text that is not a number counts as 0, so ` + "`true`" + ` turns nothing on; a warning says so.
- Some variables must be the same on all ranks. Rank 0's value counts then, and a warning names the ranks that differ.
- Names that begin with ` + "`GOROVOD_`" + ` do not exist in Horovod. All variables are as old as gorovod 0.1.0.
- Most jobs need none of them.
`

func docs() string {
	var b strings.Builder
	b.WriteString(docsIntro)
	b.WriteString(values("Operations", tuning))
	b.WriteString(values("Reports", reports))

	b.WriteString("\n## Set by horovodrun\n\nFor each rank. Set them yourself only if you start ranks by " +
		"other means.\n\n" +
		"| variable | default | meaning |\n|---|---|---|\n")
	for _, k := range implemented {
		if k.section == placement {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Name, defaultOf(&k), cell(&k))
		}
	}

	b.WriteString("\n## Read by the launcher and by Python\n\n| variable | for | meaning |\n|---|---|---|\n")
	for _, k := range implemented {
		if k.section == elsewhere {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Name, k.By, cell(&k))
		}
	}
	b.WriteString(reasons("Refused", "`hvd.init()` fails if one of these asks for something.", Refused))
	b.WriteString(reasons("Without meaning here",
		"Accepted, since there is nothing that they could change.", Meaningless))

	b.WriteString("\n## In detail\n")
	for _, d := range details() {
		k := knob(d.name)
		doc := strings.ToUpper(k.Doc[:1]) + linked(k.Doc[1:])
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n%s\n\n", d.name, folded(doc+"."), linked(d.about))
		fmt.Fprintf(&b, "| | |\n|---|---|\n| default | %s |\n| since | gorovod 0.1.0%s |\n", defaultOf(k), before(k))
		fmt.Fprintf(&b, "| whose value counts | %s |\n| costs | %s |\n| change it | %s |\n", whose(k), linked(d.costs),
			linked(d.touch))
	}
	return b.String()
}

// folded breaks a paragraph into lines of at most 120 characters.
func folded(text string) string {
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case length+1+len(word) > 120:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}

// values is the table of the knobs of a section.
func values(heading string, in section) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n| variable | default | whose value counts | meaning |\n|---|---|---|---|\n", heading)
	for _, k := range implemented {
		if k.section == in {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, defaultOf(&k), whose(&k), cell(&k))
		}
	}
	return b.String()
}

// reasons is the table of the foreign knobs of a class.
func reasons(heading, text string, class Class) string {
	var b strings.Builder
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
	return b.String()
}

func knob(name string) *Knob {
	for i := range implemented {
		if implemented[i].Name == name {
			return &implemented[i]
		}
	}
	return nil
}

// cell is the table's text about a knob, with a link to its details.
func cell(k *Knob) string {
	for _, d := range details() {
		if d.name == k.Name {
			return linked(k.Doc) + fmt.Sprintf(" ([more](#%s))", strings.ToLower(k.Name))
		}
	}
	return linked(k.Doc)
}

func whose(k *Knob) string {
	switch {
	case k.By != "":
		return "that of " + k.By
	case k.Agreed:
		return "rank 0's"
	}
	return "each rank's"
}

// before says that a variable is older than this project.
func before(k *Knob) string {
	if strings.HasPrefix(k.Name, "HOROVOD_") && k.Name != "HOROVOD_SECRET_KEY" {
		return "; Horovod 0.28 has it, too"
	}
	return ""
}

func defaultOf(k *Knob) string {
	if d := k.Default(); d != "" {
		return "`" + d + "`"
	}
	return "none"
}

var page = regexp.MustCompile(`docs/([a-z_]+\.md)`)

// linked turns the names of pages into links.
func linked(text string) string { return page.ReplaceAllString(text, "[docs/$1]($1)") }

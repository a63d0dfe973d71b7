package world

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const docsFile = "../../../docs/contract.md"

// section makes sure that a generated section of docs/contract.md is text, or
// makes it so with -update.
func section(t *testing.T, name, text string) {
	t.Helper()
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok := strings.Cut(string(page), begin)
	old, after, closed := strings.Cut(rest, end)
	switch {
	case !ok || !closed:
		t.Fatalf("%s has no section %q", docsFile, name)
	case old == text:
	case *update:
		if err := os.WriteFile(docsFile, []byte(before+begin+text+end+after), 0o666); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the section %q of %s is not what the test has found; rewrite it with: go generate "+
			"./internal/joining/world\n%s", name, docsFile, text)
	}
}

// casesTable is the table of the cases that have passed.
func casesTable(passed tally) string {
	var b strings.Builder
	b.WriteString("| operation | type |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(columns)) + "\n")
	total := make([]cell, len(columns))
	line := func(row, dt string) {
		fmt.Fprintf(&b, "| %s | %s |", row, dt)
		for i, c := range columns {
			at := passed.at(row, dt, c.name)
			fmt.Fprintf(&b, " %v |", at)
			total[i].done += at.done
			total[i].refused += at.refused
		}
		b.WriteByte('\n')
	}
	for _, row := range rows {
		for _, dt := range allTypes() {
			line(row.name, dt.String())
		}
	}
	for _, dt := range allTypes() {
		line(joinRow, dt.String())
	}
	line(barrierRow, "")
	b.WriteString("| **all** | |")
	for i := range total {
		fmt.Fprintf(&b, " %v |", &total[i])
	}
	b.WriteByte('\n')
	return b.String()
}

// String is "12 + 3 refused".
func (c *cell) String() string {
	switch {
	case c.refused == 0:
		return fmt.Sprint(c.done)
	case c.done == 0:
		return fmt.Sprintf("%d refused", c.refused)
	}
	return fmt.Sprintf("%d + %d refused", c.done, c.refused)
}

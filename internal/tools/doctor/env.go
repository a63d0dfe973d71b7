package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/tools/doctor/cluster"
)

// errUnusable is Env's error for an environment with which no job starts. Env has then printed the reasons.
var errUnusable = errors.New("with this environment no job starts")

// Env prints the table of variables, with the values that a rank in this environment has before it meets the others.
// Below it prints what is wrong, or may be wrong. It returns errUnusable if the launcher, the front end or init would
// fail; else w's error.
func Env(w io.Writer, environ []string) error {
	values, c, reasons := read(environ)
	var b bytes.Buffer
	table(&b, c)
	section(&b, "Wrong:", lines(reasons))
	section(&b, "Note:", notes(c, values))
	if _, err := b.WriteTo(w); err != nil {
		return err
	}
	if reasons != nil {
		return errUnusable
	}
	return nil
}

// launchers are the beginnings of the names that the launcher sets anew for its ranks.
var launchers = []string{"HOROVOD_HOSTNAME=", "HOROVOD_RANK=", "HOROVOD_SIZE=", "HOROVOD_LOCAL_", "HOROVOD_CROSS_",
	"HOROVOD_GLOO_RENDEZVOUS_", "HOROVOD_SECRET_KEY="}

// variables judges an environment: why the launcher, the front end or init would fail with it, and what is odd.
func variables(environ []string) cluster.Variables {
	values, c, err := read(slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		return slices.ContainsFunc(launchers, func(name string) bool { return strings.HasPrefix(variable, name) })
	}))
	return cluster.Variables{Wrong: err, Odd: append(slices.Clone(c.Warnings),
		config.Misspelt(slices.Collect(maps.Keys(values)))...)}
}

// read reads the variables. reasons is as wrong's error.
func read(environ []string) (values map[string]string, c *config.Config, reasons error) {
	values = make(map[string]string, len(environ))
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		values[name] = value
	}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	c = config.Read(lookup)
	return values, c, errors.Join(c.Err(), config.Elsewhere(lookup))
}

// table has a row for each variable; variables with an effect come first.
func table(w io.Writer, c *config.Config) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "VARIABLE\tVALUE\tFROM\tCLASS\tMEANING")
	for _, s := range c.Settings() {
		value, origin, doc := s.Value, s.Origin.String(), strings.ReplaceAll(s.Doc, "`", "")
		switch {
		case value != "":
		case s.Secret:
			value, origin = "not set", "-"
		default:
			value, origin = "-", "-"
		}
		if s.Agreed {
			doc += " (rank 0's value counts)"
		}
		if s.By != "" {
			doc = "for " + s.By + ": " + doc
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", s.Name, value, origin, s.Class, doc)
	}
	t.Flush()
}

// notes are facts that a user should know although nothing is wrong.
func notes(c *config.Config, values map[string]string) []string {
	all := slices.Clone(c.Warnings)
	return append(all, config.Unknown(slices.Collect(maps.Keys(values)))...)
}

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func section(w io.Writer, heading string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", heading)
	for _, item := range items {
		fmt.Fprintf(w, "  %s\n", item)
	}
}

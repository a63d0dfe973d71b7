package printable

import (
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"grad/größe 日本\n\tnext":     "grad/größe 日本\n\tnext",
		"red \x1b[31m":              `red \x1b[31m`,
		"bell \a, back \b, over \r": `bell \a, back \b, over \r`,
		"C1 \u009b31m":              `C1 \u009b31m`,
		"a byte \x9b31m":            `a byte \x9b31m`,
		"right to left \u202eabc":   `right to left \u202eabc`,
		"\x00\x7f":                  `\x00\x7f`,
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		var out strings.Builder
		if n, err := (Writer{&out}).Write([]byte(in)); out.String() != want || n != len(in) || err != nil {
			t.Errorf("%q: wrote %q: %d, %v", in, out.String(), n, err)
		}
	}
}

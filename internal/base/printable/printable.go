// Package printable makes text fit for a terminal. Names of tensors, hosts and files, and reports of other processes,
// may hold characters that control a terminal: they could hide or forge lines. The packages that print call it where
// text leaves the program.
package printable

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is s with every character that might control a terminal written as in a quoted Go string, such as \x1b. Newlines
// and tabs stay.
func Text(s string) string {
	i := strings.IndexFunc(s, obeyed)
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)+16), s[:i]...)
	for rest := s[i:]; rest != ""; {
		r, n := utf8.DecodeRuneInString(rest)
		switch {
		case !obeyed(r):
			b = append(b, rest[:n]...)
		default:
			quoted := strconv.QuoteToASCII(rest[:n])
			b = append(b, quoted[1:len(quoted)-1]...)
		}
		rest = rest[n:]
	}
	return string(b)
}

// obeyed reports whether a terminal might obey r: control characters, characters that change the direction of text, and
// bytes that are no character.
func obeyed(r rune) bool {
	return r != '\n' && r != '\t' && (r == utf8.RuneError || unicode.IsControl(r) ||
		unicode.Is(unicode.Bidi_Control, r))
}

// Writer passes the text that is written to it on as Text. A Write must not end inside a character.
type Writer struct{ To io.Writer }

func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.To, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

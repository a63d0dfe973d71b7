package printable

import (
	"strings"
	"unicode/utf8"
)

// Wrap breaks a text between words into lines of at most so many characters; 0 stands for no limit. A longer word has a
// line of its own. An empty text is one empty line.
func Wrap(text string, columns int) (lines []string) {
	line, used := "", 0
	for word := range strings.FieldsSeq(text) {
		width := utf8.RuneCountInString(word)
		if line != "" && columns > 0 && used+1+width > columns {
			lines, line, used = append(lines, line), "", 0
		}
		if line != "" {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+width
	}
	return append(lines, line)
}

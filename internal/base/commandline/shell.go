package commandline

import (
	"strings"

	"github.com/gorovod/gorovod/internal/base/lazyregexp"
)

// Join is a command line for a shell.
func Join(command []string) string {
	var b strings.Builder
	for i, w := range command {
		if i > 0 {
			b.WriteByte(' ')
		}
		if plainWord().MatchString(w) {
			b.WriteString(w)
		} else {
			b.WriteString(Quote(w))
		}
	}
	return b.String()
}

// plainWord matches words that no shell interprets.
var plainWord = lazyregexp.New(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Quote makes s one word for any shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

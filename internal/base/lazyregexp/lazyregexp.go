// Package lazyregexp compiles regular expressions at their first use. A launch starts agents and supervisors by the
// hundred; they are the same program and need none of the expressions.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that compiles the expression when it is first called, and
// panics if it is malformed. Any goroutine may call it.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

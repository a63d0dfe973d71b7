package doctor

import (
	"cmp"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/gorovod/gorovod/internal/base/printable"
)

// removed replaces a secret in a bundle.
const removed = "(removed)"

// shortestSecret is the length from which a secret variable's value is searched for in all texts. A shorter value, such
// as 1 or true, is everywhere.
const shortestSecret = 6

// secretName matches names of variables whose values are secrets, as far as names tell.
var secretName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)SECRET|TOKEN|PASS(W|PHRASE|$|_)|PWD_|_PWD|CRED|PRIVATE|KEY|AUTH|COOKIE|` +
		`JWT|BEARER|SESSION|SIGNATURE|(^|_)PAT($|_)`)
})

// shapes match text that looks like a secret. The text of the first group stays.
var shapes = sync.OnceValue(func() []*regexp.Regexp {
	const word = `[\w.-]*(?:secret|token|passw(?:or)?d|passphrase|credential|pwd|api[_-]?key|access[_-]?key|` +
		`private[_-]?key|auth|signature)[\w.-]*`
	const end = `[\w.-]*[_-](?:key|pwd|pat|pass|pw|creds?)\b` // such as DB_PWD
	const quoted = `\\?"[^"\n]*"|'[^'\n]*'`
	var all []*regexp.Regexp
	for _, shape := range []string{
		`()(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`,
		`([a-z][a-z0-9+.-]*://)[^\s"'<>]*@`,                         // https://user:password@host
		`()[\w.+-]+:[^\s"'<>@/,;]+@`,                                // user:password@host
		`([?&#][\w.~%\[\]-]+=)[^\s&"'<>#]+`,                         // ?code=…
		`(?i)(authorization[ \t]*[:=][ \t]*)(?:\w+[ \t]+)?[^\s"']+`, // a header
		`(?i)(\bbearer[ \t]+)[\w.~+/=-]{6,}`,                        // its value alone
		// token=…, "password": "…"
		`(?i)((?:` + word + `|` + end + `)\\?["']?[ \t]*[:=][ \t]*)(?:` + quoted + `|[^\s&;,"']+)`,
		// the key 'value'
		`(?i)((?:` + word + `|` + end + `|\bkey)["']?[ \t]+(?:(?:is|was|of)[ \t]+)?)(?:` + quoted + `)`,
		// by their makers' marks
		`()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`,
		`()\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|hf_|AIza|npm_|pypi-|dckr_pat_)[\w-]{16,}`,
		`()\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?`, // a JSON web token
		`()\b[0-9a-fA-F]{32,}\b`,
	} {
		all = append(all, regexp.MustCompile(shape))
	}
	return all
})

// opaque matches what may be a secret without a mark; looksRandom then decides by its characters.
var opaque = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z0-9+/_-]{32,}={0,2}`) })

// redactor removes secrets from texts: text that looks like one, the values of variables with names of secrets, and all
// of a command but its program.
type redactor struct{ values *strings.Replacer }

// newRedactor makes the redactor of an environment, and of commands that the user has given otherwise.
func newRedactor(environ []string, commands ...string) *redactor {
	var values []string
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if slices.Contains(commandVariables, name) {
			commands = append(commands, value)
		}
		if secretName().MatchString(name) {
			for _, line := range append(strings.Split(value, "\n"), value) {
				values = append(values, forms(line)...)
			}
		}
	}
	for _, c := range commands {
		for _, part := range secretsOf(c) {
			values = append(values, forms(part)...)
		}
	}
	slices.SortFunc(values, func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b)) // a whole value before its parts
	})
	var pairs []string
	for _, c := range commands { // before their parts
		if shown := programOf(c); shown != c && len(c) >= shortestSecret {
			for _, v := range forms(c) {
				pairs = append(pairs, v, shown)
			}
		}
	}
	for _, v := range slices.Compact(values) {
		pairs = append(pairs, v, removed)
	}
	return &redactor{strings.NewReplacer(pairs...)}
}

// forms are the ways in which a text may have a value. A short value has none, because it is everywhere.
func forms(value string) (all []string) {
	quoted, _ := json.Marshal(value) // a string always has a JSON form
	for _, v := range []string{value, strings.TrimSpace(value), strings.Trim(string(quoted), `"`),
		strings.Trim(strconv.Quote(value), `"`), url.QueryEscape(value), url.PathEscape(value), printable.Text(value)} {
		if len(v) >= shortestSecret {
			all = append(all, v)
		}
	}
	return all
}

// text is s without secrets.
func (r *redactor) text(s string) string {
	s = r.values.Replace(s)
	for _, shape := range shapes() {
		s = shape.ReplaceAllString(s, "${1}"+removed)
	}
	s = withoutArguments(s)
	return opaque().ReplaceAllStringFunc(s, func(word string) string {
		if looksRandom(word) {
			return removed
		}
		return word
	})
}

// looksRandom tells a key, such as one in base64, from a path or a long name.
func looksRandom(word string) bool {
	has := func(is func(rune) bool) bool { return strings.ContainsFunc(word, is) }
	return has(unicode.IsUpper) && has(unicode.IsLower) && has(unicode.IsDigit) && !strings.HasPrefix(word, "/") &&
		strings.Count(word, "/") <= len(word)/12
}

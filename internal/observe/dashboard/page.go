package dashboard

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

//go:embed page.html
var pageText string

//go:embed page.css
var styleText string

//go:embed page.js
var scriptText string

//go:embed login.html
var loginText string

//go:embed login.js
var loginScript string

// The pages, each with its style and script inside. Neither has anything of the job.
var (
	page      = whole(pageText, scriptText)
	loginPage = whole(loginText, loginScript)
)

// policy allows the pages only their own style and scripts, and their own server. The scripts send all forms.
var policy = "default-src 'none'; script-src 'sha256-" + digest(scriptText) + "' 'sha256-" + digest(loginScript) +
	"'; style-src 'sha256-" + digest(styleText) + "'; connect-src 'self'; img-src data:; form-action 'none'; " +
	"base-uri 'none'; frame-ancestors 'none'"

func whole(text, script string) []byte {
	return []byte(strings.NewReplacer("{{style}}", styleText, "{{script}}", script).Replace(text))
}

// digest is an element's text as a Content-Security-Policy names it.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// html is the handler of a page.
func html(text []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(text)
	}
}

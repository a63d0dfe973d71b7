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

// The pages, each with its style and script inside.
var (
	page      = whole(pageText)
	loginPage = whole(strings.Replace(loginText, "{{wrong}}", "", 1))
	wrongPage = whole(strings.Replace(loginText, "{{wrong}}",
		`<p role="alert" class="wrong">This is not the token.</p>`, 1))
)

// policy allows the pages only their own style and script, and their own server.
var policy = "default-src 'none'; script-src 'sha256-" + digest(scriptText) + "'; style-src 'sha256-" +
	digest(styleText) + "'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; " +
	"frame-ancestors 'none'"

func whole(text string) []byte {
	return []byte(strings.NewReplacer("{{style}}", styleText, "{{script}}", scriptText).Replace(text))
}

// digest is an element's text as a Content-Security-Policy names it.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func html(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(text)
}

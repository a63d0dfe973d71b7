package door

import (
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The limits of a server. A slower reader loses its connection.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 10 * time.Second
	idleTimeout  = 2 * time.Minute // longer than Prometheus' usual interval
	maxHeader    = 8 << 10
	headerSlop   = 4 << 10 // what net/http reads beyond MaxHeaderBytes
)

// NewServer returns a server with these limits. It logs nothing, because requests can hold secrets.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadTimeout: readTimeout, ReadHeaderTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader - headerSlop,
		ConnContext: connContext, ErrorLog: log.New(io.Discard, "", 0)}
}

// mostForm is the most bytes of a form.
const mostForm = 1 << 10

// Guard lets only GET and HEAD requests without a body pass, within quotas. proven reports whether a reader has proven
// that it knows the token, or needs none. These readers have one quota of their own, and keep their connections:
// otherwise others could shut them out. The others have a quota for each source: see sourceOf. policy is the answers'
// Content-Security-Policy. forms are paths that also accept a POST of a small form from a page of their own. On
// loopback the request's Host must name loopback. Otherwise a foreign web page could read the answers through its own
// name, if that name leads here.
func Guard(loopback bool, policy string, proven func(*http.Request) bool, next http.Handler,
	forms ...string) http.Handler {
	known, unknown := newQuotas(), newQuotas()
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		requests, from := known, netip.Prefix{} // one source
		if proven(r) {
			defer busy(r)()
		} else {
			requests, from = unknown, sourceOf(r.RemoteAddr)
			h.Set("Connection", "close")
		}
		form := r.Method == http.MethodPost && slices.Contains(forms, r.URL.Path)
		if form {
			r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		} else if r.ContentLength != 0 { // otherwise the server would wait for the body
			r.Body = http.MaxBytesReader(w, r.Body, 0)
			h.Set("Connection", "close")
		}
		refuse := func(text string, code int) {
			h.Set("Connection", "close")
			http.Error(w, text, code)
		}
		switch {
		case !requests.take(from, time.Now()):
			refuse("too many requests", http.StatusTooManyRequests)
		case !form && r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			refuse("only GET and HEAD", http.StatusMethodNotAllowed)
		case loopback && !namesLoopback(r.Host):
			refuse("the request is for another host", http.StatusMisdirectedRequest)
		case form && foreign.Check(r) != nil:
			refuse("the form is from another page", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Authorized reports whether a request has the token as "Authorization: Bearer TOKEN", where Bearer may be written in
// any case (RFC 9110, 11.1). An empty token needs none.
func Authorized(r *http.Request, token string) bool {
	if token == "" {
		return true
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return Same(given, token) && strings.EqualFold(scheme, "Bearer")
}

// Same compares digests, so that it takes equally long for all tokens.
func Same(given, token string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// namesLoopback reports whether a request's Host is localhost or an address of loopback.
func namesLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

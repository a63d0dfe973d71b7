package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"
)

const (
	cookieName   = "gorovod"
	sessionTime  = 12 * time.Hour
	mostSessions = 64
)

// sessions are readers that have presented the token. A session's cookie is a random number, not the token.
type sessions struct {
	secure bool // over TLS

	mu   sync.Mutex
	open []session // the oldest first
}

type session struct {
	digest [sha256.Size]byte // of the cookie, so that the time of a comparison reveals nothing
	until  time.Time
}

// begin begins a session. If there are too many, the oldest one ends.
func (s *sessions) begin(w http.ResponseWriter) {
	value := rand.Text()
	s.mu.Lock()
	s.open = append(s.open, session{sha256.Sum256([]byte(value)), time.Now().Add(sessionTime)})
	s.open = s.open[max(0, len(s.open)-mostSessions):]
	s.mu.Unlock()
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: int(sessionTime.Seconds()),
		HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteStrictMode})
}

// has reports whether a request belongs to a session.
func (s *sessions) has(r *http.Request) bool {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return false
	}
	digest, now := sha256.Sum256([]byte(c.Value)), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.open {
		if o.digest == digest && now.Before(o.until) {
			return true
		}
	}
	return false
}

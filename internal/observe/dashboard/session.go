package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync"
	"time"
)

const (
	cookiePrefix = "gorovod-"
	keyParameter = "key"
	sessionTime  = 12 * time.Hour
	mostSessions = 64
)

// sessions are readers that have presented the token. A reader shows its session by two random numbers, neither of
// which is the token:
//
//   - a cookie, which no script can read. A browser sends it to all ports of this host, so other servers get it, too.
//   - a key, which the page's script keeps for its origin, that is, for this port. It is in the address of each request
//     for data, since an EventSource has no headers. That is safe here: a key is worth nothing without the cookie,
//     these addresses are in no history, and door's servers log none.
//
// The cookie's name differs between servers, since two pages on one host would otherwise overwrite each other's.
type sessions struct {
	secure bool   // over TLS
	name   string // of the cookie

	mu   sync.Mutex
	open []session // the oldest first
}

type session struct {
	digest [sha256.Size]byte
	until  time.Time
}

func newSessions(secure bool) *sessions {
	return &sessions{secure: secure, name: cookiePrefix + rand.Text()[:8]}
}

// begin begins a session: it sets the cookie and returns the key. If there are too many sessions, the oldest one ends.
func (s *sessions) begin(w http.ResponseWriter) (key string) {
	cookie, key := rand.Text(), rand.Text()
	s.mu.Lock()
	s.open = append(s.open, session{digestOf(cookie, key), time.Now().Add(sessionTime)})
	s.open = s.open[max(0, len(s.open)-mostSessions):]
	s.mu.Unlock()
	http.SetCookie(w, &http.Cookie{Name: s.name, Value: cookie, Path: "/", MaxAge: int(sessionTime.Seconds()),
		HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteStrictMode})
	return key
}

// has reports whether a request has the cookie and the key of one session.
func (s *sessions) has(r *http.Request) bool {
	c, err := r.Cookie(s.name)
	key := r.URL.Query().Get(keyParameter)
	if err != nil || key == "" {
		return false
	}
	digest, now := digestOf(c.Value, key), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.open {
		if subtle.ConstantTimeCompare(o.digest[:], digest[:]) == 1 && now.Before(o.until) {
			return true
		}
	}
	return false
}

// digestOf is the digest of both halves of a session.
func digestOf(cookie, key string) [sha256.Size]byte { return sha256.Sum256([]byte(cookie + " " + key)) }

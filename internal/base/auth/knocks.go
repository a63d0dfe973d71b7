package auth

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/printable"
)

// knockPause is the least time between two lines about strangers.
const knockPause = 10 * time.Second

// maxKnockers is how many addresses a line names at most.
const maxKnockers = 8

// Knocks reports strangers: addresses that came to a job's listeners and did not prove that they know the secret, or
// whose certificate one of the two ends does not accept. It
// reports the first stranger at once, then writes one line every ten seconds while more come. Otherwise it uses no CPU.
// Its methods are safe on any goroutine, and on nil.
type Knocks struct {
	tell  func(text string)
	pause time.Duration

	mu      sync.Mutex
	closed  bool
	waiting *time.Timer // nil unless a line was written within the pause
	count   int         // strangers since the last line
	from    map[netip.Addr]*knocker
}

// knocker counts the strangers of one address.
type knocker struct {
	count   int
	reasons map[string]int // how often each came; reasonOf has few values
}

// NewKnocks returns a Knocks that calls tell with each line, on any goroutine, one call at a time. tell must not block
// for long.
func NewKnocks(tell func(text string)) *Knocks {
	return &Knocks{tell: tell, pause: knockPause, from: make(map[netip.Addr]*knocker)}
}

// Note notes a connection on which Accept or Seal has failed with err. It ignores a peer that left after this end's
// proof: a rank that has tried several addresses does so.
func (k *Knocks) Note(c net.Conn, err error) {
	if k == nil || errors.Is(err, errLeft) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	a := addrOf(c)
	if k.from[a] == nil {
		if len(k.from) >= maxKnockers {
			a = netip.Addr{} // all further addresses together
		}
		if k.from[a] == nil {
			k.from[a] = &knocker{reasons: make(map[string]int)}
		}
	}
	k.from[a].count++
	k.from[a].reasons[reasonOf(err)]++
	k.count++
	if k.waiting == nil && !k.closed {
		k.say()
		k.waiting = time.AfterFunc(k.pause, k.again)
	}
}

// again reports the strangers that came during the pause.
func (k *Knocks) again() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting = nil
	if k.count > 0 && !k.closed {
		k.say()
		k.waiting = time.AfterFunc(k.pause, k.again)
	}
}

// Close reports the strangers that have not been reported.
func (k *Knocks) Close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.waiting != nil {
		k.waiting.Stop()
	}
	if k.count > 0 {
		k.say()
	}
}

// say reports all strangers since the last line. k.mu is held.
func (k *Knocks) say() {
	var parts []string
	addrs := make([]netip.Addr, 0, len(k.from))
	for a := range k.from {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, func(a, b netip.Addr) int { return k.from[b].count - k.from[a].count })
	for _, a := range addrs {
		who := "elsewhere"
		if a.IsValid() {
			who = a.String()
		}
		var why []string
		for reason, n := range k.from[a].reasons {
			if k.from[a].count > 1 {
				reason = fmt.Sprintf("%d× %s", n, reason)
			}
			why = append(why, reason)
		}
		slices.Sort(why)
		parts = append(parts, who+": "+strings.Join(why, ", "))
	}
	k.tell("refused who did not prove to belong to this job: " + strings.Join(parts, "; "))
	k.count = 0
	clear(k.from)
}

// reasonOf describes an error in a few words of this package, without any text from the connection, unless that has
// proved to know the secret.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, ErrProof):
		return "a wrong proof"
	case errors.Is(err, ErrCertificate):
		return printable.Text(strings.TrimPrefix(err.Error(), "auth: "))
	case errors.Is(err, ErrForeign):
		return "something else than gorovod's handshake"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "no proof in time"
	case errors.Is(err, net.ErrClosed):
		return "no proof before too many others came"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it left without a word of the handshake"
	}
	return "the connection broke"
}

package launch

import (
	"log"
	"log/slog"
	"strings"
	"sync"

	"github.com/gorovod/gorovod/internal/base/logging"
)

// catchRawLog gives what the standard library logs by itself the form of this program's messages. Only net/http does,
// about servers that break the protocol.
func catchRawLog(name string) {
	log.SetFlags(0)
	log.SetOutput(&rawLog{name: name, said: map[string]bool{}})
}

// rawLog prints each message once.
type rawLog struct {
	name string
	mu   sync.Mutex
	said map[string]bool
}

// mostRawLines bounds the messages: a server chooses some of their text.
const mostRawLines = 8

func (r *rawLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "Unsolicited response") {
		text = "an HTTP server, such as the collector of OpenTelemetry, sends more than its answer; the connection " +
			"is closed, and the job goes on"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.said[text] && len(r.said) < mostRawLines {
		r.said[text] = true
		logging.Print(slog.LevelWarn, r.name, text)
	}
	return len(line), nil
}

package launch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/rendezvous"
)

// leaveVariable is --leave-on as a variable.
const leaveVariable = "GOROVOD_LEAVE_ON"

const (
	// noticeEvery is the time between two looks for a notice.
	noticeEvery = time.Second
	// noticeTimeout is how long a look may take.
	noticeTimeout = 5 * time.Second
)

// departure is the news that this node is to leave the job.
type departure struct {
	why  chan string  // a reason; or an empty one, if the node is to end at once
	code atomic.Int32 // the launcher's exit code, once there is a reason
}

// departures listens for signals, and looks for the notice at where, unless that is empty. A node's exit code is that
// of a process which the signal has killed, so that nobody takes its work for done.
func departures(where string) *departure {
	d := &departure{why: make(chan string, 8)}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	notice := make(chan string, 1)
	if where != "" {
		go func() { notice <- awaitNotice(where) }()
	}
	go func() {
		for first := true; ; first = false {
			why, sig := "", syscall.SIGTERM
			select {
			case s := <-signals:
				sig = s.(syscall.Signal)
				why = "its launcher got " + rendezvous.SignalName(int(sig))
				if !first {
					why = ""
				}
			case why = <-notice:
				if !first {
					continue
				}
			}
			d.code.CompareAndSwap(0, 128+int32(sig))
			select {
			case d.why <- why:
			default:
			}
		}
	}()
	return d
}

// awaitNotice returns, with words for it, when the notice is there: a file, or a URL that answers with success and
// anything but FALSE.
func awaitNotice(where string) string {
	for ; ; time.Sleep(noticeEvery) {
		if isURL(where) {
			if text, there := fetchNotice(where); there {
				return fmt.Sprintf("%s says %q", where, text)
			}
		} else if _, err := os.Stat(where); err == nil {
			return where + " is there"
		}
	}
}

// fetchNotice asks once.
func fetchNotice(where string) (text string, there bool) {
	ctx, cancel := context.WithTimeout(context.Background(), noticeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return "", false
	}
	request.Header.Set("Metadata-Flavor", "Google") // which Google's cloud demands, and others ignore
	answer, err := noticeClient.Do(request)
	if err != nil {
		return "", false // who does not answer has no notice: it is asked again
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 200))
	text = strings.TrimSpace(string(body))
	return text, err == nil && answer.StatusCode/100 == 2 && !strings.EqualFold(text, "false")
}

// noticeClient uses no proxy: the metadata service of a cloud is at the machine itself.
var noticeClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func isURL(where string) bool {
	return strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://")
}

// checkNotice refuses a URL that cannot be asked.
func checkNotice(where string) error {
	if !isURL(where) {
		return nil
	}
	if u, err := url.Parse(where); err != nil || u.Host == "" {
		return fmt.Errorf("--leave-on %s: a file, or a URL such as http://HOST/PATH is needed", where)
	}
	return nil
}

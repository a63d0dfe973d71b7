// Package notice finds out that this machine is to go: by a signal, by a file, or by the page on which a cloud
// announces it. It only tells; leaving the job is for the caller.
package notice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/lazyregexp"
)

const (
	// interval is the time between two looks for a notice.
	interval = time.Second
	// timeout is how long a request may take.
	timeout = 5 * time.Second
	// patience is how long looks may fail before the user hears of it: a pod's network may come late.
	patience = 10 * time.Second
	// maxNotice is the most bytes of an answer that are read.
	maxNotice = 1 << 20
)

// Version 2 of the metadata service of Amazon's machines answers only clients that have fetched a token from it.
const (
	tokenPath   = "/latest/api/token"
	tokenHeader = "X-aws-ec2-metadata-token"
	ttlHeader   = "X-aws-ec2-metadata-token-ttl-seconds"
	tokenTTL    = "21600" // seconds: the longest that the service allows
)

// noticeClient uses no proxy, because a cloud's metadata service is on the machine itself.
var noticeClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
	DialContext: (&net.Dialer{Timeout: timeout}).DialContext}}

// Await returns, with words for the user, when the notice is there. A notice is a file, or a URL whose answer
// says that this machine is to go (see board.look). If no notice can be seen for patience, say is called
// once. It is called at once if the file's folder is not there, since that may be a mistake.
func Await(where string, say func(text string)) string {
	look, form := (&board{url: where}).look, "%s says %s"
	if !isURL(where) {
		look, form = func() (string, bool, error) { return lookForFile(where) }, "%s %s"
		if folder := filepath.Dir(where); missing(folder) {
			say(fmt.Sprintf("--leave-on %s: there is no folder %s; this node leaves if the file appears there", where,
				folder))
		}
	}
	worked, told := time.Now(), false
	for ; ; time.Sleep(interval) {
		text, there, err := look()
		switch {
		case there:
			return fmt.Sprintf(form, where, text)
		case err == nil:
			worked, told = time.Now(), false
		case !told && time.Since(worked) > patience:
			told = true
			say(fmt.Sprintf("--leave-on: no notice can be seen: %v. It is tried again every second", err))
		}
	}
}

// lookForFile looks once, as board.look does.
func lookForFile(name string) (text string, there bool, err error) {
	_, err = os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return "is there", err == nil, err
}

func missing(name string) bool {
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// board is the URL at which a notice will be.
type board struct {
	url     string
	token   string // of Amazon's service; empty until the service asks for one
	machine string // this machine's name on Azure, once it is known
}

// look asks once. If err is nil, the answer was understood; there says whether it is a notice, and text is the notice.
func (b *board) look() (text string, there bool, err error) {
	azure := b.azure()
	if azure && b.machine == "" {
		if b.machine, err = b.fetchMachine(); err != nil {
			return "", false, err
		}
	}
	code, text, err := b.ask(http.MethodGet, b.url, map[string]string{
		"Metadata-Flavor": "Google", // Google's cloud demands it, and others ignore it
		"Metadata":        "true",   // so does Azure
		tokenHeader:       b.token})
	if err == nil && code == http.StatusUnauthorized { // Amazon's: the token is missing or too old
		if b.token, err = b.fetchToken(); err != nil {
			return "", false, err
		}
		code, text, err = b.ask(http.MethodGet, b.url, map[string]string{tokenHeader: b.token})
	}
	switch {
	case err != nil:
		return "", false, err
	case code/100 == 2 && azure:
		return b.scheduled(text)
	case code/100 == 2:
		there, err = said(b.url, text)
		return strconv.Quote(clip(text)), there, err
	case code == http.StatusNotFound && !azure: // Amazon's, until there is a notice
		return "", false, nil
	}
	return "", false, unanswered(b.url, code, text)
}

// said reports whether an answer with success is a notice. Of pages that are known it knows all answers, and others are
// an error; of other pages every text is a notice that is not in noNotices.
func said(where, text string) (there bool, err error) {
	path, _, _ := strings.Cut(where, "?")
	upper := strings.ToUpper(text)
	switch {
	case strings.HasSuffix(path, googlePreempted):
		there, err = choose(upper, "TRUE", "FALSE")
	case strings.HasSuffix(path, googleMaintenance):
		there, err = choose(upper, "TERMINATE_ON_HOST_MAINTENANCE", "NONE", "MIGRATE_ON_HOST_MAINTENANCE")
	case strings.HasSuffix(path, amazonAction):
		var what struct{ Action string }
		if text != "" && (json.Unmarshal([]byte(text), &what) != nil || what.Action == "") {
			err = errors.New("JSON with an action")
		}
		there = what.Action != ""
	case strings.HasSuffix(path, amazonTime): // another text than a time means that there is none yet
		_, no := time.Parse(time.RFC3339, text)
		there = no == nil
	default:
		there = !slices.Contains(noNotices, upper)
	}
	if err != nil {
		return false, fmt.Errorf("%s answers %s, not %w", where, strconv.Quote(clip(text)), err)
	}
	return there, nil
}

// choose reports whether text is yes; if it is none of no either, the error lists them all.
func choose(text, yes string, no ...string) (bool, error) {
	if text != yes && !slices.Contains(no, text) {
		return false, errors.New(strings.Join(append(no, yes), " or "))
	}
	return text == yes, nil
}

// The ends of the paths of pages whose answers are known.
const (
	googlePreempted   = "/instance/preempted"
	googleMaintenance = "/instance/maintenance-event"
	amazonAction      = "/meta-data/spot/instance-action"
	amazonTime        = "/meta-data/spot/termination-time"
)

// noNotices are answers of other pages, in upper case, that mean that the machine stays.
var noNotices = []string{"", "FALSE", "NONE", "MIGRATE_ON_HOST_MAINTENANCE"}

// unanswered is the error of an answer that has no success.
func unanswered(where string, code int, text string) error {
	if text != "" {
		text = ": " + strconv.Quote(clip(text))
	}
	return fmt.Errorf("%s answers %d %s%s", where, code, http.StatusText(code), text)
}

// clip shortens an answer for a message.
func clip(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// fetchToken gets a token from the service at the URL's host.
func (b *board) fetchToken() (string, error) {
	u, err := url.Parse(b.url)
	if err != nil {
		return "", err
	}
	at := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: tokenPath}).String()
	code, token, err := b.ask(http.MethodPut, at, map[string]string{ttlHeader: tokenTTL})
	switch {
	case err != nil:
		return "", fmt.Errorf("%s wants a token, as Amazon's metadata service does, and gives none: %w (in a "+
			"container its answers need a hop limit of 2 or more: aws ec2 modify-instance-metadata-options "+
			"--http-put-response-hop-limit 2)", u.Host, err)
	case code != http.StatusOK || token == "":
		return "", fmt.Errorf("%s answers %d %s, and %s gives no token: %d %s", b.url, http.StatusUnauthorized,
			http.StatusText(http.StatusUnauthorized), at, code, http.StatusText(code))
	}
	return token, nil
}

// ask sends a request with the non-empty headers.
func (b *board) ask(method, where string, headers map[string]string) (code int, text string, err error) {
	limit := timeout
	if b.azure() {
		limit = azureTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, where, nil)
	if err != nil {
		return 0, "", err
	}
	for name, value := range headers {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	answer, err := noticeClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxNotice))
	return answer.StatusCode, strings.TrimSpace(string(body)), err
}

// scheme matches the beginning of a URL.
var scheme = lazyregexp.New(`^[A-Za-z][-+.A-Za-z0-9]*://`)

func isURL(where string) bool { return scheme().MatchString(where) }

// Check refuses a URL that cannot be asked, one with a password, since messages name the URL, and what looks like
// a mistake. name is the option or the variable.
func Check(name, where string) error {
	if where != strings.TrimSpace(where) {
		return fmt.Errorf("%s %s: it begins or ends with white space", name, strconv.Quote(where))
	}
	if !isURL(where) {
		return nil
	}
	u, err := url.Parse(where) // with the scheme in lower case
	switch {
	case err != nil || u.Host == "" && u.Scheme != "file":
		return fmt.Errorf("%s %s: a file, or a URL such as http://HOST/PATH is needed", name, where)
	case u.User != nil:
		return fmt.Errorf("%s %s: messages name the URL, so it cannot have a user or a password", name, u.Redacted())
	case u.Scheme == "file":
		return fmt.Errorf("%s %s: name a file by its path alone: %s", name, where, u.Path)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%s %s: a URL of http or https is needed, or a file", name, where)
	}
	return nil
}

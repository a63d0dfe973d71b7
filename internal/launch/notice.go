package launch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	// noticeEvery is the time between two looks for a notice.
	noticeEvery = time.Second
	// noticeTimeout is how long a request may take.
	noticeTimeout = 5 * time.Second
	// noticePatience is how long requests may fail before the user hears of it: a pod's network may come late.
	noticePatience = 10 * time.Second
)

// Version 2 of the metadata service of Amazon's machines answers only clients that have fetched a token from it.
const (
	tokenPath   = "/latest/api/token"
	tokenHeader = "X-aws-ec2-metadata-token"
	ttlHeader   = "X-aws-ec2-metadata-token-ttl-seconds"
	tokenTTL    = "21600" // seconds: the longest that the service allows
)

// noticeClient uses no proxy, because a cloud's metadata service is on the machine itself.
var noticeClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// awaitNotice returns, with words for the user, when the notice is there. A notice is a file, or a URL that answers
// with success and anything but FALSE. If the URL cannot be asked for noticePatience, say is called once.
func awaitNotice(where string, say func(text string)) string {
	board := &noticeBoard{url: where}
	worked, told := time.Now(), false
	for ; ; time.Sleep(noticeEvery) {
		if !isURL(where) {
			if _, err := os.Stat(where); err == nil {
				return where + " is there"
			}
			continue
		}
		text, there, err := board.look()
		switch {
		case there:
			return fmt.Sprintf("%s says %q", where, text)
		case err == nil:
			worked, told = time.Now(), false
		case !told && time.Since(worked) > noticePatience:
			told = true
			say(fmt.Sprintf("--leave-on: no notice can be seen: %v. It is asked again every second", err))
		}
	}
}

// noticeBoard is the URL at which a notice will be.
type noticeBoard struct {
	url   string
	token string // of Amazon's service; empty until the service asks for one
}

// look asks once. If err is nil, the answer was understood, and there says whether it is a notice.
func (b *noticeBoard) look() (text string, there bool, err error) {
	code, text, err := b.ask(http.MethodGet, b.url, map[string]string{
		"Metadata-Flavor": "Google", // Google's cloud demands it, and others ignore it
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
	case code/100 == 2:
		return text, !strings.EqualFold(text, "false"), nil
	case code == http.StatusNotFound:
		return "", false, nil
	}
	return "", false, fmt.Errorf("%s answers %d %s", b.url, code, http.StatusText(code))
}

// fetchToken gets a token from the service at the URL's host.
func (b *noticeBoard) fetchToken() (string, error) {
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
func (b *noticeBoard) ask(method, where string, headers map[string]string) (code int, text string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), noticeTimeout)
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
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1000))
	return answer.StatusCode, strings.TrimSpace(string(body)), err
}

func isURL(where string) bool {
	return strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://")
}

// checkNotice refuses a URL that cannot be asked, and one with a password, since messages name the URL.
func checkNotice(where string) error {
	if !isURL(where) {
		return nil
	}
	u, err := url.Parse(where)
	if err != nil || u.Host == "" {
		return fmt.Errorf("--leave-on %s: a file, or a URL such as http://HOST/PATH is needed", where)
	}
	if u.User != nil {
		return fmt.Errorf("--leave-on %s: messages name the URL, so it cannot have a user or a password", u.Redacted())
	}
	return nil
}

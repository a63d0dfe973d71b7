package dashboard

import (
	"net"
	"net/http"
	"testing"

	"github.com/gorovod/gorovod/internal/observe/door"
)

// TestAFloodFromElsewhere asks for the page and its login without the token, as fast as one address can. Another
// address gets both.
func TestAFloodFromElsewhere(t *testing.T) {
	s, _ := open(t, door.Options{Address: "0", Token: token})
	transport := &http.Transport{DialContext: (&net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
	defer transport.CloseIdleConnections()
	for i, refused := 0, 0; refused < 20; i++ {
		a, err := (&http.Client{Transport: transport}).Get(s.URL() + []string{"", "login"}[i%2])
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode == http.StatusTooManyRequests {
			refused++
		} else if i > 1000 {
			t.Fatal("the quota is endless")
		}
	}
	for _, path := range []string{"/", "/login"} {
		if code, text := get(t, s, path, nil); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
}

package metrics

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/test/leak"
)

const token = "correct-horse-battery"

func open(t *testing.T, o door.Options) *Server {
	t.Helper()
	before := leak.Now()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.Close()
		before.Check(t)
	})
	s.Form(1, 0, all(1), nil)
	return s
}

// get is the status and the text of an answer.
func get(t *testing.T, s *Server, path string, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, strings.TrimSuffix(s.URL(), "/metrics")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestPaths(t *testing.T) {
	s := open(t, door.Options{Address: "0"})
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 200, "/": 404,
		"/debug/pprof/": 404, "/../etc/passwd": 404} {
		if code, text := get(t, s, path, nil); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	s.Form(4, 1<<20, all(3), nil)
	if code, text := get(t, s, "/readyz", nil); code != 503 || text != "3 of 4 ranks have joined\n" {
		t.Errorf("%d %s", code, text)
	}
	_, text := get(t, s, "/metrics", header("Accept", "application/openmetrics-text; version=1.0.0"))
	if !strings.HasSuffix(text, "\n# EOF\n") {
		t.Errorf("no OpenMetrics: %s", text)
	}
	r, err := http.Post(s.URL(), "text/plain", strings.NewReader("x"))
	if err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", r, err)
	}
	r.Body.Close()
}

func TestHostsOfOthersAreRefused(t *testing.T) {
	s := open(t, door.Options{Address: "0"})
	for host, want := range map[string]int{"localhost": 200, "LOCALHOST:1": 200, "127.0.0.1:80": 200, "127.9.9.9": 200,
		"[::1]:80": 200, "": 200, // Go's client then takes the address
		"evil.example": 421, "localhost.evil.example": 421, "10.0.0.1": 421, "127.0.0.1.evil.example:80": 421} {
		for _, path := range []string{"/metrics", "/healthz"} {
			if code, _ := get(t, s, path, func(r *http.Request) { r.Host = host }); code != want {
				t.Errorf("Host %q, %s: %d, not %d", host, path, code, want)
			}
		}
	}
}

func TestTokens(t *testing.T) {
	s := open(t, door.Options{Address: "0", Token: token})
	for value, want := range map[string]int{"": 401, "Bearer": 401, "Bearer ": 401, "Bearer wrong": 401, token: 401,
		"Basic " + token: 401, "Bearer " + token + "x": 401, "Bearer " + token: 200,
		"bearer " + token: 200, "BEARER " + token: 200, "bearer": 401, "bearer wrong": 401} {
		code, text := get(t, s, "/metrics", header("Authorization", value))
		if code != want || strings.Contains(text, token) {
			t.Errorf("%q: %d %s", value, code, text)
		}
	}
	if code, _ := get(t, s, "/metrics?token="+token, nil); code != 401 {
		t.Errorf("a token in the URL: %d", code)
	}
	if code, _ := get(t, s, "/healthz", nil); code != 200 {
		t.Errorf("the health needs a token: %d", code)
	}
}

// TestAddresses checks which addresses need what.
func TestAddresses(t *testing.T) {
	certificate, key := selfSigned(t)
	for _, c := range []struct {
		o    door.Options
		says string
	}{
		{door.Options{Address: "x"}, "PORT or HOST:PORT"},
		{door.Options{Address: "-1"}, "0 to 65535"},
		{door.Options{Address: "70000"}, "0 to 65535"},
		{door.Options{Address: "::1:9400"}, "PORT or HOST:PORT"},
		{door.Options{Address: "0.0.0.0:0"}, door.TokenFileVariable},
		{door.Options{Address: "[::]:0"}, door.TokenFileVariable},
		{door.Options{Address: ":0"}, door.TokenFileVariable},
		{door.Options{Address: "0", Token: "short"}, "16"},
		{door.Options{Address: "0", Token: "with a space, but long"}, "without spaces"},
		{door.Options{Address: "0.0.0.0:0", Token: token, Encrypted: true}, door.CertificateVariable},
		{door.Options{Address: "0", Certificate: certificate}, "both"},
		{door.Options{Address: "0", Certificate: certificate, Key: "/nowhere"}, "/nowhere"},
		{door.Options{Address: "0.0.0.0:0", Token: token}, ""},
		{door.Options{Address: "localhost:0"}, ""},
		{door.Options{Address: "0", Encrypted: true}, ""},
		{door.Options{Address: "0.0.0.0:0", Token: token, Encrypted: true, Certificate: certificate, Key: key}, ""},
	} {
		s, err := Open(c.o)
		switch {
		case err == nil:
			s.Close()
			if c.says != "" {
				t.Errorf("%+v is accepted", c.o)
			}
		case c.says == "" || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), token):
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{door.TokenFileVariable: file}
	o, err := door.From("0", func(name string) string { return variables[name] })
	if err != nil || o.Token != token {
		t.Errorf("%+v, %v", o, err)
	}
	variables[door.TokenFileVariable] = file + ".none"
	if _, err := door.From("0", func(name string) string { return variables[name] }); err == nil {
		t.Error("no file, and no error")
	}
	variables[door.TokenFileVariable] = "/dev/zero"
	if _, err := door.From("0", func(name string) string { return variables[name] }); err == nil ||
		!strings.Contains(err.Error(), door.TokenFileVariable+": /dev/zero is not a regular file") {
		t.Errorf("a device: %v", err)
	}
}

func TestTLS(t *testing.T) {
	certificate, key := selfSigned(t)
	s := open(t, door.Options{Address: "0", Certificate: certificate, Key: key})
	text, _ := os.ReadFile(certificate)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get(s.URL())
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("%v, %v", r, err)
	}
	r.Body.Close()
}

// TestReadersWithoutTheTokenKeepNobodyOut takes all places and the whole quota without the token.
func TestReadersWithoutTheTokenKeepNobodyOut(t *testing.T) {
	s := open(t, door.Options{Address: "0", Token: token})
	scrape := func(when string) {
		t.Helper()
		http.DefaultClient.CloseIdleConnections()
		if code, text := get(t, s, "/metrics", header("Authorization", "Bearer "+token)); code != 200 {
			t.Errorf("%s: %d %s", when, code, text)
		}
	}
	dial := func(text string) net.Conn {
		c, err := net.Dial("tcp", s.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, text)
		return c
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		c := dial("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadAll(c); os.IsTimeout(err) {
			t.Errorf("%s: the connection stays", path)
		}
		c.Close()
	}
	for _, text := range []string{"", "GET /metr"} {
		for range maxConns {
			defer dial(text).Close()
		}
		scrape("after readers that say \"" + text + "\"")
	}
	code := 0
	for range 100 {
		code, _ = get(t, s, "/metrics", nil)
	}
	if code != http.StatusTooManyRequests {
		t.Errorf("the last of 100 readers gets %d", code)
	}
	scrape("after 100 requests")
}

// TestReadersThatMisbehave checks that the server keeps its limits with bad readers, and answers afterwards.
func TestReadersThatMisbehave(t *testing.T) {
	s := open(t, door.Options{Address: "0"})
	addr := s.listener.Addr().String()
	value := figures(10, time.Second).Append(nil)
	s.Form(4096, 1<<20, all(4096), nil)
	for rank := range 4096 {
		s.Job().Take(rank, 1<<20, "", value)
	}
	var kept []net.Conn
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for i := range maxConns { // readers that ask and never read take all places
		c := dial()
		kept = append(kept, c)
		fmt.Fprintf(c, "GET /metrics?%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i)
	}
	for range 1000 { // each is answered, or closed at once
		c := dial()
		fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); os.IsTimeout(err) {
			t.Fatal("a connection beyond the bound waits")
		}
		c.Close()
	}
	for _, c := range kept {
		c.Close()
	}
	for _, garbage := range []string{"\x00\xff\xfe garbage\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"GET " + strings.Repeat("/metrics", 1<<16) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"} {
		c := dial()
		go io.WriteString(c, garbage)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		line, err := bufio.NewReader(c).ReadString('\n')
		if os.IsTimeout(err) || strings.Contains(line, " 200 ") {
			t.Errorf("%.40q: %s, %v", garbage, line, err)
		}
		c.Close()
	}
	tries := 0
	for ; tries < 100; tries++ { // until the places are free again, and the quota allows it
		r, err := http.Get(s.URL())
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		_, err = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		if err == nil && r.StatusCode == http.StatusOK {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if tries == 100 {
		t.Error("the server does not recover")
	}
}

// selfSigned makes a certificate for 127.0.0.1, and returns its file and that of its key.
func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1),
		Subject: pkix.Name{CommonName: "gorovod test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	signed, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: signed}, key: {
		Type: "PRIVATE KEY", Bytes: bytes}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// Package door guards what the launcher shows over HTTP: which readers may come in, from where, and how many. A reader
// can only read, and never delays the job.
package door

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/config"
)

// Options say where something is shown, and to which readers.
type Options struct {
	// Address is PORT, for this host's loopback, or HOST:PORT. HOST 0.0.0.0 means all addresses of IPv4; [::] or none
	// means those of IPv6, too. With port 0 the system chooses.
	Address string
	// Token, if not empty, is the token that readers must present. Addresses that other hosts reach need one.
	Token string
	// Certificate and Key are the files of a TLS certificate and its key; both or none.
	Certificate, Key string
	// Encrypted: the job's own connections are encrypted. Then other hosts may read only over TLS.
	Encrypted bool
}

// The variables for Options.
const (
	TokenVariable       = "GOROVOD_METRICS_TOKEN"
	TokenFileVariable   = "GOROVOD_METRICS_TOKEN_FILE"
	CertificateVariable = "GOROVOD_METRICS_CERT"
	KeyVariable         = "GOROVOD_METRICS_KEY"
	EncryptedVariable   = "GOROVOD_TLS" // the job's: any value but 0 counts as yes
)

// leastToken is the least length of a token, in characters.
const leastToken = 16

// From returns the options for address; the other options come from variables.
func From(address string, getenv func(string) string) (Options, error) {
	encrypted := getenv(EncryptedVariable)
	if auth.CertificatesFrom(getenv).IsSet() {
		encrypted = "1"
	}
	o := Options{Address: address, Token: getenv(TokenVariable), Certificate: getenv(CertificateVariable),
		Key: getenv(KeyVariable), Encrypted: encrypted != "" && encrypted != "0"}
	if file := getenv(TokenFileVariable); file != "" && o.Token == "" {
		var err error
		if o.Token, err = config.ReadSecretFile(file); err != nil {
			return o, fmt.Errorf("%s: %w", TokenFileVariable, err)
		}
		if o.Token == "" {
			return o, fmt.Errorf("%s: %s is empty", TokenFileVariable, file)
		}
	}
	return o, o.check()
}

// check refuses options that make no sense.
func (o *Options) check() error {
	if _, _, err := o.split(); err != nil {
		return err
	}
	if o.Token != "" && (len(o.Token) < leastToken || strings.ContainsFunc(o.Token, func(r rune) bool {
		return r <= ' ' || r >= 0x7f
	})) {
		return fmt.Errorf("the token for the metrics must be %d printable ASCII characters or more, without spaces",
			leastToken)
	}
	if (o.Certificate == "") != (o.Key == "") {
		return fmt.Errorf("%s and %s: both or none", CertificateVariable, KeyVariable)
	}
	return nil
}

// split takes Address apart.
func (o *Options) split() (host string, port int, err error) {
	host, text := "127.0.0.1", o.Address
	if strings.Contains(text, ":") {
		if host, text, err = net.SplitHostPort(text); err != nil {
			return "", 0, fmt.Errorf("%q: PORT or HOST:PORT is needed, such as 9400 or [::]:9400", o.Address)
		}
	}
	if port, err = strconv.Atoi(text); err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%q: PORT or HOST:PORT is needed, with a port from 0 to 65535", o.Address)
	}
	return host, port, nil
}

// renewed is a certificate whose files are read again and again, because they may be renewed.
type renewed struct {
	o Options

	mu   sync.Mutex
	pair *tls.Certificate
	read time.Time
}

// renewalPause is the least time between two readings.
const renewalPause = time.Second

// get returns the certificate of the files, or the last one if they cannot be used now.
func (r *renewed) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.read) > renewalPause {
		r.read = time.Now()
		if pair, err := r.o.pair(); err == nil {
			r.pair = &pair
		}
	}
	return r.pair, nil
}

// pair reads the certificate and its key.
func (o *Options) pair() (tls.Certificate, error) {
	return auth.ReadPair(CertificateVariable, o.Certificate, KeyVariable, o.Key)
}

// Listen opens the address. If other hosts reach the address, Listen refuses it without a token, and without TLS if the
// job is encrypted. At most conns connections are open at a time.
func (o *Options) Listen(conns int) (l net.Listener, loopback bool, err error) {
	if err := o.check(); err != nil {
		return nil, false, err
	}
	host, port, _ := o.split()
	var secure *tls.Config
	if o.Certificate != "" {
		pair, err := o.pair()
		if err == nil {
			err = auth.Usable(pair, tls.VersionTLS12)
		}
		if err != nil {
			return nil, false, err
		}
		kept := &renewed{o: *o, pair: &pair, read: time.Now()}
		secure = &tls.Config{GetCertificate: kept.get, MinVersion: tls.VersionTLS12}
	}
	network := "tcp"
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		network = "tcp4" // else 0.0.0.0 would take IPv6, too
	}
	l, err = net.Listen(network, net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, false, err
	}
	loopback = l.Addr().(*net.TCPAddr).IP.IsLoopback()
	switch {
	case loopback:
	case o.Token == "":
		err = errors.New("other hosts can reach this address: give a token in " + TokenFileVariable + " or " +
			TokenVariable + ", or only a port, for this host alone")
	case o.Encrypted && secure == nil:
		err = errors.New("the job is encrypted (GOROVOD_TLS), and other hosts can reach this address: give a " +
			"certificate and its key in " + CertificateVariable + " and " + KeyVariable)
	}
	if err != nil {
		l.Close()
		return nil, false, err
	}
	l = newBounded(l, conns)
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	return l, loopback, nil
}

// URL is the address of path for readers. If l takes connections to all of this host's addresses, it has the host's
// name.
func (o *Options) URL(l net.Listener, path string) string {
	scheme := "http"
	if o.Certificate != "" {
		scheme = "https"
	}
	at := l.Addr().(*net.TCPAddr)
	if host, _, err := o.split(); err == nil && !at.IP.IsLoopback() {
		if at.IP.IsUnspecified() {
			host, err = os.Hostname()
		}
		if err == nil && host != "" {
			return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(at.Port)) + path
		}
	}
	return scheme + "://" + at.String() + path
}

package world

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/auth/certtest"
)

// Ranks with certificates of one CA meet and reduce.
func TestMountedCertificates(t *testing.T) {
	ca, l := certtest.NewCA(t), newLauncher(t, 3)
	l.Certificates = ca.Issue(t.TempDir(), time.Now().Add(time.Hour))
	certs := []auth.Certificates{l.Certificates, ca.Below().Issue(t.TempDir(), time.Now().Add(time.Hour)),
		ca.Issue(t.TempDir(), time.Now().Add(time.Hour))}
	each(3, func(r int) {
		c := l.config(r, 3, "tls")
		c.Certificates = certs[r]
		w, err := join(context.Background(), c, 1, quiet())
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
			return
		}
		if v, err := add(w, "x", float32(r)); err != nil || v != 3 {
			t.Errorf("rank %d: %v %v", r, v, err)
		}
		w.Leave(limit)
	})
}

// A rank whose certificate another CA has signed, or that does not use TLS, does not get in, and says why at once.
func TestUnfitCertificate(t *testing.T) {
	ca, later := certtest.NewCA(t), time.Now().Add(time.Hour)
	good, strange := ca.Issue(t.TempDir(), later), certtest.NewCA(t).Issue(t.TempDir(), later)
	strange.CA = good.CA
	for says, with := range map[string]auth.Certificates{strange.Cert: strange, "there is none without TLS": {}} {
		l := newLauncher(t, 2)
		l.Certificates = good
		c := l.config(1, 2, "tls")
		c.Certificates, c.TLS = with, with.IsSet()
		ctx, cancel := context.WithTimeout(t.Context(), limit) // a rank that gets in waits for the other one
		_, err := join(ctx, c, 1, quiet())
		cancel()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, should say %q", err, says)
		}
	}
}

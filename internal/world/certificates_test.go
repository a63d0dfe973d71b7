package world

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/auth"
	"github.com/gorovod/gorovod/internal/auth/certtest"
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

// A rank whose certificate another CA has signed does not get in, and says why at once. If it gets past the rendezvous,
// because that has no certificates, then the other ranks refuse it, and say so, too.
func TestUnfitCertificate(t *testing.T) {
	ca := certtest.NewCA(t)
	good := ca.Issue(t.TempDir(), time.Now().Add(time.Hour))
	strange := certtest.NewCA(t).Issue(t.TempDir(), time.Now().Add(time.Hour))
	strange.CA = good.CA
	t.Run("the launcher refuses it", func(t *testing.T) {
		l := newLauncher(t, 2)
		l.Certificates = good
		c := l.config(1, 2, "tls")
		c.Certificates = strange
		_, err := join(context.Background(), c, 1, quiet())
		if !errors.Is(err, auth.ErrCertificate) || !strings.Contains(err.Error(), strange.Cert) {
			t.Error(err)
		}
	})
	t.Run("the ranks refuse it", func(t *testing.T) {
		// Ranks without TLS reach the rendezvous, and get TLS from rank 0.
		l := newLauncher(t, 2)
		l.Certificates = good
		each(2, func(r int) {
			c := l.config(r, 2, "tls")
			c.Certificates = good
			if r == 1 {
				c.Certificates, c.TLS = auth.Certificates{}, false
			}
			w, err := join(context.Background(), c, 1, quiet())
			if err == nil {
				_, failure := add(w, "x", 1)
				if failure != nil {
					err = failure
				}
				w.Leave(limit)
			}
			if err == nil || !strings.Contains(err.Error(), "certificate refused") {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	})
}

package launch

import (
	"github.com/gorovod/gorovod/internal/base/auth"
)

// findCertificates reads the variables about certificates for TLS. The launcher needs the files, too: ranks begin TLS
// with it. Jobs of MPI meet without the launcher, and have no TLS.
func (f *flags) findCertificates() (err error) {
	if f.MPI {
		return nil
	}
	if f.certificates, err = checkedCertificates(f.lookup); err == nil && f.place != nil {
		f.place.Certificates = f.certificates
	}
	return err
}

// checkedCertificates returns the certificates that the variables name, or why they cannot be used.
func checkedCertificates(getenv func(string) string) (auth.Certificates, error) {
	c := auth.CertificatesFrom(getenv)
	return c, c.Check(getenv("GOROVOD_TLS") == "0")
}

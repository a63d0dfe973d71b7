package flags

import (
	"github.com/gorovod/gorovod/internal/base/auth"
)

// findCertificates reads the variables about certificates for TLS. The launcher needs the files, too: ranks begin TLS
// with it. Jobs of MPI meet without the launcher, and have no TLS.
func (f *Flags) findCertificates() (err error) {
	if f.MPI {
		return nil
	}
	if f.Certificates, err = CheckedCertificates(f.Lookup); err == nil && f.Place != nil {
		f.Place.Certificates = f.Certificates
	}
	return err
}

// CheckedCertificates returns the certificates that the variables name, or why they cannot be used.
func CheckedCertificates(getenv func(string) string) (auth.Certificates, error) {
	c := auth.CertificatesFrom(getenv)
	return c, c.Check(getenv("GOROVOD_TLS") == "0")
}

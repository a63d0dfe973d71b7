//go:build !linux

package door

import (
	"errors"
	"net"
	"time"
)

// ErrOther is never returned here.
var ErrOther = errors.New("it belongs to another user")

var errNoLocal = errors.New("that needs Linux")

// ListenLocal opens nothing here.
func ListenLocal(int) (net.Listener, error) { return nil, errNoLocal }

// Locals finds nothing here.
func Locals() (map[int]string, error) { return nil, errNoLocal }

// DialLocal connects to nothing here.
func DialLocal(int, string, time.Duration) (net.Conn, error) { return nil, errNoLocal }

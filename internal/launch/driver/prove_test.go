package driver

import (
	"encoding/json"
	"net"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/elastic"
)

// proveAs proves a connection as a worker, without a Client.
func proveAs(c net.Conn, worker int) error {
	hello, err := json.Marshal(elastic.Hello{Protocol: elastic.Protocol, Shape: elastic.Shape(), Worker: worker,
		PID: 1})
	if err != nil {
		return err
	}
	return auth.Initiate(c, key, hello)
}

package launch

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A collector that sends more than its answer costs the user one sentence, and no line of Go's.
func TestCollectorThatSendsTooMuch(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					request, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					request.Body.Close()
					c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
					time.Sleep(50 * time.Millisecond) // the client has read the answer
					c.Write([]byte("and more"))
				}
			}()
		}
	}()
	// The failure of rank 0 is a span that goes out while rank 1 still runs.
	job := launched(t, []string{"GOROVOD_OTLP=1", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + l.Addr().String()}, "-np",
		"2", "sh", "-c", `[ "$HOROVOD_RANK" = 0 ] && exit 3; sleep 3`)
	job.expect(3)
	got := job.stderr.String()
	if strings.Count(got, "horovodrun: an HTTP server, such as the collector of OpenTelemetry, sends more than") != 1 ||
		strings.Contains(got, "Unsolicited") {
		t.Errorf("stderr: %q", got)
	}
}

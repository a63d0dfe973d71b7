package metrics

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// quietVariable makes the ranks do a known amount of work, and then wait.
const quietVariable = "GOROVOD_METRICS_TEST_QUIET"

const (
	quietRounds = 20
	quietBytes  = 1 << 20 // of each allreduce
	quietRows   = 40000   // bytes that each rank contributes to each allgather
)

// quiet does the work, checks what this rank has counted, and waits for the file stop.
func quiet(stop string) error {
	data, rows := make([]float32, quietBytes/4), make([]uint8, quietRows)
	for range quietRounds {
		if err := hvd.Allreduce(context.Background(), "gradient", data); err != nil {
			return err
		}
		if _, err := hvd.Allgather(context.Background(), "rows", rows); err != nil {
			return err
		}
	}
	figures, err := hvd.Metrics()
	if err != nil {
		return err
	}
	want := []hvd.WireFigures{{Link: os.Getenv(quietVariable), SizeClass: "1MiB",
		Bytes: quietRounds * (quietBytes + quietRows)}}
	if want[0].Link == "tcp" {
		want[0].NIC = "lo"
	}
	if len(figures.Wire) == 1 {
		want[0].Time = figures.Wire[0].Time
	}
	if len(figures.Wire) != 1 || figures.Wire[0] != want[0] || want[0].Time <= 0 {
		return fmt.Errorf("sent %+v, not %+v", figures.Wire, want)
	}
	for {
		if _, err := os.Stat(stop); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestBytesByLink runs known operations of two ranks, over shared memory and over TCP, and reads the exact number of
// bytes that both have sent: all of a tensor of an allreduce, and what they contribute to an allgather.
func TestBytesByLink(t *testing.T) {
	for link, labels := range map[string]string{"shm": `{link="shm"}`, "tcp": `{link="tcp",nic="lo"}`} {
		t.Run(link, func(t *testing.T) {
			j := start(t, []string{quietVariable + "=" + link, "GOROVOD_TRANSPORT=" + link}, "-np", "2", "--metrics-port", "0")
			const want = 2 * quietRounds * (quietBytes + quietRows)
			page := j.await(t, "all bytes", "", func(page string) bool { return value(page, "wire_bytes_total"+labels) >= want })
			for name, want := range map[string]float64{"wire_bytes_total" + labels: want,
				`bus_bytes_total{op="allreduce",size_class="1MiB"}`: 2 * quietRounds * quietBytes,
				`bus_bytes_total{op="allgather",size_class="1MiB"}`: 2 * quietRounds * quietRows} {
				if got := value(page, name); got != want {
					t.Errorf("%s is %.0f, not %.0f", name, got, want)
				}
			}
			j.end(t)
		})
	}
}

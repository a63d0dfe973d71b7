package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
	"github.com/gorovod/gorovod/internal/observe/overview"
)

// quietVariable makes the ranks do a known amount of work, and then wait.
const quietVariable = "GOROVOD_METRICS_TEST_QUIET"

// largeVariable makes the ranks sum 4 MiB each time.
const largeVariable = "GOROVOD_METRICS_TEST_LARGE"

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
	for !over(stop) {
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// TestBytesByLink runs known operations of two ranks, over shared memory and over TCP, and reads the exact number of
// bytes that both have sent: all of a tensor of an allreduce, and what they contribute to an allgather.
func TestBytesByLink(t *testing.T) {
	for link, labels := range map[string]string{"shm": `{link="shm"}`, "tcp": `{link="tcp",nic="lo"}`} {
		t.Run(link, func(t *testing.T) {
			j := start(t, []string{quietVariable + "=" + link, "GOROVOD_TRANSPORT=" + link}, "-np", "2",
				"--metrics-port", "0")
			const want = 2 * quietRounds * (quietBytes + quietRows)
			page := j.await(t, "all bytes", "", func(page string) bool {
				return value(page, "wire_bytes_total"+labels) >= want
			})
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

var dashboardAddress = regexp.MustCompile(`the dashboard is at (\S+)/`)

// TestBandwidthBesideTheLimit reads on the live page how fast a job sends, and what this machine could do.
func TestBandwidthBesideTheLimit(t *testing.T) {
	for link, limited := range map[string]bool{"shm": true, "tcp": false} { // nobody knows the speed of the loopback
		t.Run(link, func(t *testing.T) {
			found := bandwidth(t, link)
			for try := 0; limited && found.Limit == 0 && try < 5; try++ { // the machine may be too busy to measure it
				found = bandwidth(t, link)
			}
			t.Logf("%+v", *found)
			if found.Rate <= 0 || found.HostRate < 1.5*found.Rate || found.HostRate > 2.5*found.Rate ||
				found.Sent <= 0 || (found.Limit > 0) != limited || (found.NIC == "lo") != (link == "tcp") {
				t.Errorf("%+v", *found)
			}
			if found.Limit > 0 && (found.Limit < 1e8 || found.HostRate > 20*found.Limit) {
				t.Errorf("a host sends %.3g bytes a second, with a limit of %.3g", found.HostRate, found.Limit)
			}
		})
	}
}

// bandwidth runs a job of two ranks, and returns what its page says of a link.
func bandwidth(t *testing.T, link string) (found *overview.Link) {
	t.Helper()
	j := start(t, []string{largeVariable + "=1", "GOROVOD_TRANSPORT=" + link}, "-np", "2", "--metrics-port", "0",
		"--dashboard=127.0.0.1:0")
	j.await(t, "the address", "", func(string) bool { return dashboardAddress.MatchString(j.out.String()) })
	j.url = dashboardAddress.FindStringSubmatch(j.out.String())[1]
	for deadline := time.Now().Add(time.Minute); found == nil && time.Now().Before(deadline); {
		var s overview.Snapshot
		_, text := j.get("/snapshot", "")
		json.Unmarshal([]byte(text), &s)
		for i := range s.Links {
			if l := &s.Links[i]; l.Link == link && l.Class == "32MiB" {
				found = l
			}
		}
		time.Sleep(time.Second)
	}
	if found == nil {
		t.Fatalf("no link of the job is shown\n%s", j.out)
	}
	j.end(t)
	return found
}

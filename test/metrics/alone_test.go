package metrics

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// ready checks that /readyz says that the one rank has joined.
func (j *job) ready(t *testing.T) {
	t.Helper()
	if code, text := j.get("/readyz", ""); code != http.StatusOK || !strings.HasPrefix(text, "1 of 1 ranks") {
		t.Errorf("readyz: %d %s", code, text)
	}
}

// TestARankAlone checks a job of one rank: it is there, and its figures are its own.
func TestARankAlone(t *testing.T) {
	j := start(t, nil, "-np", "1", "--metrics-port", "0")
	page := j.await(t, "figures", "", func(page string) bool {
		return value(page, "reporting_ranks") == 1 && value(page, "samples_total") > 0 &&
			value(page, `collectives_total{dtype="float32",op="allreduce",process_set="0"}`) > 0
	})
	if n := value(page, `workers{state="joined"}`); n != 1 {
		t.Errorf("%v ranks have joined", n)
	}
	j.ready(t)
	j.end(t)
}

// TestARankIsLeftAlone kills one of two ranks. The other one goes on in a world of its own, and the sums grow.
func TestARankIsLeftAlone(t *testing.T) {
	j := start(t, []string{nanVariable + "=" + os.DevNull}, "-np", "2", "--min-np", "1", "--metrics-port", "0")
	const sums = `collectives_total{dtype="float32",op="allreduce",process_set="0"}`
	page := j.await(t, "two ranks", "", func(page string) bool {
		return value(page, "reporting_ranks") == 2 && value(page, sums) > 0
	})
	text, err := os.ReadFile(j.stop + ".pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	before := value(page, sums)
	j.await(t, "one rank", "", func(page string) bool {
		return value(page, "world_size") == 1 && value(page, "reporting_ranks") == 1 && value(page, sums) > before+1000
	})
	j.ready(t)
	j.end(t)
}

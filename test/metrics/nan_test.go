package metrics

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// nanVariable makes the ranks train elastically. Its value is a file: whoever makes it contributes a NaN.
const nanVariable = "GOROVOD_METRICS_TEST_NAN"

// nothing is the state of a training that forgets nothing.
type nothing struct{}

func (nothing) Save()                      {}
func (nothing) Restore()                   {}
func (nothing) Sync(context.Context) error { return nil }

// trainWithANaN sums until rank 0 has seen the file stop. Rank 1 contributes one NaN.
func trainWithANaN(stop, once string) error {
	return hvd.RunElastic(context.Background(), nothing{}, func(ctx context.Context, _ *hvd.Elastic) error {
		for step := 0; ; step++ {
			ends, data := []float32{0}, []float32{1, 2, 3}
			if hvd.Rank() == 0 && over(stop) {
				ends[0] = 1
			}
			if hvd.Rank() == 1 && step == 10 {
				if f, err := os.OpenFile(once, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
					f.Close()
					data[2] = float32(math.NaN())
				}
			}
			if err := hvd.Allreduce(ctx, "gradient", data); err != nil {
				return err
			}
			if err := hvd.Allreduce(ctx, "over", ends, hvd.WithOp(hvd.Sum)); err != nil || ends[0] > 0 {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// TestANaNOutlivesItsWorld checks that an elastic job which GOROVOD_NAN_CHECK=abort has formed anew says who had the
// NaN, on stderr and in the dashboard's history, and still counts it.
func TestANaNOutlivesItsWorld(t *testing.T) {
	j := start(t, []string{nanVariable + "=" + t.TempDir() + "/once", "GOROVOD_NAN_CHECK=abort"}, "-np", "2",
		"--min-np", "2", "--metrics-port", "0", "--dashboard=0")
	page := j.await(t, "the job goes on", "", func(page string) bool {
		return value(page, `elastic_resets_total{cause="error"}`) == 1 && value(page, "reporting_ranks") == 2
	})
	for rank, want := range map[string]float64{"0": 0, "1": 1} {
		if n := value(page, `nan_total{rank="`+rank+`"}`); n != want {
			t.Errorf("%v NaNs of rank %s, not %v", n, rank, want)
		}
	}
	const sentence = `contributes a NaN to allreduce "gradient": at index 2 of 3 (float32); NaNs: 1, infinities: 0`
	told := regexp.MustCompile(`formed anew, with 2 ranks, since an operation has failed: .*rank 1 on .*` +
		regexp.QuoteMeta(sentence))
	dashboard := regexp.MustCompile(`the dashboard is at (\S+)`).FindStringSubmatch(j.out.String())
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		history := history(t, dashboard[1])
		if told.MatchString(history) {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("the history is %s", history)
			break
		}
	}
	j.end(t)
	if n := strings.Count(j.out.String(), sentence); n != 1 {
		t.Errorf("told %d times: %s", n, j.out)
	}
}

// history is what the dashboard at the address says has happened, a line for each event.
func history(t *testing.T, address string) string {
	t.Helper()
	r, err := http.Get(address + "snapshot")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var snapshot struct {
		History []struct{ Text string }
	}
	if err := json.NewDecoder(r.Body).Decode(&snapshot); err != nil {
		return err.Error() // there is none yet
	}
	var b strings.Builder
	for _, e := range snapshot.History {
		b.WriteString(e.Text + "\n")
	}
	return b.String()
}

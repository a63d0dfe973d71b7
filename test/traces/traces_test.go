// Package traces tests gorovod trace merge with the timelines of real jobs.
package traces

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// rankVariable makes this program a rank.
const rankVariable = "GOROVOD_TRACES_TEST_RANK"

func TestMain(m *testing.M) {
	if d, err := time.ParseDuration(os.Getenv(stepsVariable)); err == nil && os.Getenv("HOROVOD_RANK") != "" {
		if err := stepForAWhile(d); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(rankVariable) != "" {
		if err := rank(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	rounds = 40
	// In every eighth round this rank is late by this time.
	sleeper = 2
	sleep   = 300 * time.Millisecond
	// prompt is the longest time that an operation may then take for a clear trace. On a busy machine it may take
	// longer. If a rank's file is missing and the operation took a tenth of the wait, a trace does not tell which rank
	// was last.
	prompt = sleep / 20
	// tries is how often the ranks repeat a round at most until its trace is clear.
	tries = 200
)

// rank is one of four ranks. They act as if they were on two hosts.
func rank() error {
	n, err := strconv.Atoi(os.Getenv("HOROVOD_RANK"))
	if err != nil {
		return err
	}
	for name, value := range map[string]any{"HOSTNAME": string(rune('a' + n/2)), "LOCAL_RANK": n % 2, "LOCAL_SIZE": 2,
		"CROSS_RANK": n / 2, "CROSS_SIZE": 2} {
		os.Setenv("HOROVOD_"+name, fmt.Sprint(value))
	}
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	ctx := context.Background()
	for i := range rounds {
		if err := hvd.Allreduce(ctx, "gradient", make([]float32, 1000)); err != nil {
			return err
		}
		var err error
		if i%8 == 7 {
			err = waitForSleeper(ctx, n, i)
		} else {
			err = hvd.Allreduce(ctx, "other", make([]float32, 10))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// waitForSleeper lets the ranks wait for the sleeper, again until the trace is clear: every rank has waited as long as
// the sleeper slept. Then the sleeper prints the name of the tensor.
func waitForSleeper(ctx context.Context, n, round int) error {
	for try := range tries {
		name := fmt.Sprintf("slept.%d.%d", round, try)
		if n == sleeper {
			time.Sleep(sleep)
		}
		began := time.Now()
		if err := hvd.Allreduce(ctx, name, make([]float32, 10)); err != nil {
			return err
		}
		expected := sleep
		if n == sleeper {
			expected = 0
		}
		clear := []float32{0}
		if (time.Since(began) - expected).Abs() < prompt {
			clear[0] = 1
		}
		if err := hvd.Allreduce(ctx, "clear", clear); err != nil {
			return err
		}
		if clear[0] == 1 { // the mean: for all ranks
			if n == sleeper {
				fmt.Println(name)
			}
			return nil
		}
	}
	return fmt.Errorf("an allreduce took longer than %v, %d times", prompt, tries)
}

// program returns the path of a program of the build.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../build/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("build/%s is not there: run make build first", name)
	}
	return path
}

var sleptFor = regexp.MustCompile(`slept\.\d+\.\d+`)

// record runs the job, and returns the names of its ranks' timelines, and the tensors for which the ranks have clearly
// waited for the sleeper.
func record(t *testing.T) (files, slept []string) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "horovodrun"), "-np", "4", "--timeline-filename",
		filepath.Join(dir, "t-{rank}.json"), os.Args[0])
	cmd.Env = append(os.Environ(), rankVariable+"=1")
	out, err := cmd.CombinedOutput()
	if slept = sleptFor.FindAllString(string(out), -1); err != nil || len(slept) != rounds/8 {
		t.Fatalf("%v\n%s", err, out)
	}
	for n := range 4 {
		files = append(files, filepath.Join(dir, fmt.Sprintf("t-%d.json", n)))
	}
	return files, slept
}

var began = regexp.MustCompile(`"start_time_since_epoch_in_micros":(\d+)`)

// shift sets a recorded clock wrong by us microseconds.
func shift(t *testing.T, file string, us int64) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	text = began.ReplaceAllFunc(text, func(m []byte) []byte {
		found = true
		n, _ := strconv.ParseInt(string(began.FindSubmatch(m)[1]), 10, 64)
		return fmt.Appendf(nil, `"start_time_since_epoch_in_micros":%d`, n+us)
	})
	if !found {
		t.Fatalf("%s does not say when it began", file)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// trace is the part of the merged file that a viewer reads.
type trace struct {
	TraceEvents []event
	OtherData   struct {
		Ranks []struct {
			Rank   int
			Host   string
			Clock  string
			Offset float64 `json:"offset_us"`
			Error  float64 `json:"error_us"`
			Notes  []string
		}
		Missing map[string][]int `json:"ranks_without_file"`
	}
}

type event struct {
	Ph, Name, BP, Cat string
	TS                *int64
	PID, TID          int
	ID                int
	Args              map[string]any
}

// merge runs the command, and checks that the result is a valid trace.
func merge(t *testing.T, files ...string) (tr trace, said string) {
	t.Helper()
	output := filepath.Join(t.TempDir(), "job.json")
	out, err := exec.Command(program(t, "gorovod"), append([]string{"trace", "merge", "-o", output}, files...)...).
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &tr); err != nil {
		t.Fatal(err)
	}
	check(t, tr)
	return tr, string(out)
}

type line struct{ pid, tid int }

// slice is a phase from B to E.
type slice struct{ from, to int64 }

// check fails unless phases are nested, times do not go back on a line, and both ends of each arrow lie in a phase.
func check(t *testing.T, tr trace) {
	t.Helper()
	open, last, slices := map[line][]int64{}, map[line]int64{}, map[line][]slice{}
	ends := map[int][2]int{}
	for i, e := range tr.TraceEvents {
		at := line{e.PID, e.TID}
		if e.Ph == "M" {
			continue
		}
		if e.TS == nil || *e.TS < 0 || e.PID < 1 {
			t.Fatalf("event %d has no time or process: %+v", i, e)
		}
		if e.Ph != "s" && e.Ph != "f" {
			if *e.TS < last[at] {
				t.Fatalf("event %d goes back: %+v", i, e)
			}
			last[at] = *e.TS
		}
		switch e.Ph {
		case "B":
			open[at] = append(open[at], *e.TS)
		case "E":
			depth := len(open[at])
			if depth == 0 {
				t.Fatalf("event %d ends nothing: %+v", i, e)
			}
			slices[at] = append(slices[at], slice{open[at][depth-1], *e.TS})
			open[at] = open[at][:depth-1]
		case "s", "f":
			inside := false
			for _, s := range slices[at] {
				inside = inside || s.from <= *e.TS && *e.TS <= s.to
			}
			if !inside {
				t.Errorf("event %d lies in no phase: %+v", i, e)
			}
			n := ends[e.ID]
			n[strings.Index("sf", e.Ph)]++
			ends[e.ID] = n
		case "X", "i":
		default:
			t.Errorf("event %d: %+v", i, e)
		}
	}
	for at, begins := range open {
		if len(begins) > 0 {
			t.Errorf("%d phases of %v do not end", len(begins), at)
		}
	}
	for id, n := range ends {
		if n != [2]int{1, 1} {
			t.Errorf("arrow %d begins and ends %v times", id, n)
		}
	}
}

// waits returns the arrows to the ranks that waited for a tensor, each as from and to.
func (tr trace) waits(tensor string) (waits [][2]int) {
	names := map[line]string{}
	from := map[int]int{}
	for _, e := range tr.TraceEvents {
		switch {
		case e.Ph == "M" && e.Name == "thread_name":
			names[line{e.PID, e.TID}] = fmt.Sprint(e.Args["name"])
		case e.Ph == "s":
			from[e.ID] = tr.OtherData.Ranks[e.PID-1].Rank
		case e.Ph == "f" && strings.HasSuffix(names[line{e.PID, e.TID}], tensor):
			waits = append(waits, [2]int{from[e.ID], tr.OtherData.Ranks[e.PID-1].Rank})
		}
	}
	return waits
}

// The clocks of two hosts differ by hours. The merged trace says by how much, within its own error, and arrows lead
// from the rank that slept to the others.
func TestClocksAndArrows(t *testing.T) {
	files, slept := record(t)
	const wrong = -2*3600_000_000 + 1_234_567
	shift(t, files[2], wrong)
	shift(t, files[3], wrong)
	tr, said := merge(t, files...)
	ahead := make([]float64, 4)
	for _, r := range tr.OtherData.Ranks {
		want := 0.0
		if r.Host == "b" {
			want = -wrong
		}
		if r.Host != string(rune('a'+r.Rank/2)) || math.Abs(r.Offset-want) > r.Error+1 || r.Error > 50_000 {
			t.Errorf("rank %d on %s: offset %v ± %v µs, want %v", r.Rank, r.Host, r.Offset, r.Error, want)
		}
		ahead[r.Rank] = r.Offset - want
	}
	for _, tensor := range slept {
		checkArrows(t, tr, tensor, ahead)
	}
	t.Log(said)
}

// checkArrows checks that arrows lead from the sleeper to all other ranks that have files, and no others. ahead is how
// far a rank's times in the merged trace are ahead of the truth, in µs. The merge leaves out an arrow that would lead
// back in time, which can be only if the sleeper's times are ahead of the other rank's.
func checkArrows(t *testing.T, tr trace, tensor string, ahead []float64) {
	t.Helper()
	waits := tr.waits(tensor)
	wrong := slices.ContainsFunc(waits, func(w [2]int) bool { return w[0] != sleeper })
	for to := range ahead {
		drawn := slices.Contains(waits, [2]int{sleeper, to})
		wrong = wrong || to != sleeper && !drawn && ahead[sleeper] <= ahead[to]
	}
	if wrong {
		t.Errorf("%s: rank %d slept, and the arrows are %v, with clocks %v ahead", tensor, sleeper, waits, ahead)
	}
}

// trace merge reports a file that is cut off and a rank without a file, and merges the rest.
func TestTornAndMissingFiles(t *testing.T) {
	files, slept := record(t)
	text, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	end := (bytes.Index(text, []byte(slept[len(slept)-2])) + len(text)) / 2
	for text[end-1] == '\n' || text[end-1] == ',' {
		end--
	}
	if err := os.WriteFile(files[1], text[:end], 0o644); err != nil {
		t.Fatal(err)
	}
	tr, said := merge(t, files[:3]...)
	if fmt.Sprint(tr.OtherData.Missing) != "map[1:[3]]" || !strings.Contains(said, "no file of ranks 3") {
		t.Errorf("missing are %v:\n%s", tr.OtherData.Missing, said)
	}
	ahead := make([]float64, 3)
	for _, r := range tr.OtherData.Ranks {
		ahead[r.Rank] = r.Offset
		if torn := strings.Contains(fmt.Sprint(r.Notes), "ends in the middle"); torn != (r.Rank == 1) {
			t.Errorf("rank %d: %v", r.Rank, r.Notes)
		}
	}
	checkArrows(t, tr, slept[0], ahead)
}

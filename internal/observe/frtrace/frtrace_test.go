package frtrace

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/observe/flight"
	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// reader prints the pickles of a folder as JSON. It refuses classes, because they could run code.
const reader = `
import json, pathlib, pickle, sys
class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise SystemExit(f"a class: {module}.{name}")
print(json.dumps({p.name: Plain(p.open("rb")).load() for p in pathlib.Path(sys.argv[1]).iterdir()}))
`

// fileOf is the part of a file that the tests read.
type fileOf struct {
	Version string
	Groups  map[string]struct{ Name, Desc, Ranks string } `json:"pg_config"`
	Entries []struct {
		Record   int              `json:"record_id"`
		Group    []string         `json:"process_group"`
		Number   int64            `json:"collective_seq_id"`
		Name     string           `json:"profiling_name"`
		Created  int64            `json:"time_created_ns"`
		In       [][]int64        `json:"input_sizes"`
		Out      [][]int64        `json:"output_sizes"`
		DTypes   []string         `json:"input_dtypes"`
		State    string           `json:"state"`
		Ended    *int64           `json:"time_discovered_completed_ns"`
		PeerTo   bool             `json:"is_p2p"`
		Frames   []map[string]any `json:"frames"`
		Finished bool             `json:"retired"`
	}
}

// saved writes dumps, and reads them back as Python does.
func saved(t *testing.T, dumps ...*flight.Dump) map[string]fileOf {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 to read pickles")
	}
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := Save(dir, dumps); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", reader, dir)
	cmd.Stderr = &strings.Builder{}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, cmd.Stderr)
	}
	files := map[string]fileOf{}
	if err := json.Unmarshal(out, &files); err != nil {
		t.Fatal(err)
	}
	return files
}

func dump(rank, size int, records ...flight.Record) *flight.Dump {
	return &flight.Dump{Job: "j", Rank: rank, Size: size, Host: "h", PID: 100 + rank, Records: records,
		Sets: map[int][]int{3: {0, 2}}}
}

// done is an operation on which the ranks have agreed as number n.
func done(name, op string, n uint64, shape ...int64) flight.Record {
	return flight.Record{Name: name, Op: op, DType: "float32", Shape: shape, Sequence: n, Submitted: int64(n),
		Agreed: int64(n), Started: int64(n), Ended: 1 << 40}
}

func waiting(name string, at int64, shape ...int64) flight.Record {
	return flight.Record{Name: name, Op: "ALLREDUCE", DType: "float32", Shape: shape, Submitted: at}
}

// Ranks submit in different orders, but their files have the same numbers. Operations for which only some ranks wait
// come last.
func TestRanksNumberOperationsAlike(t *testing.T) {
	behind := waiting("c", 3, 7) // the others have read that all ranks agree
	files := saved(t,
		dump(2, 3, done("b", "ALLREDUCE", 2, 5), done("a", "ALLREDUCE", 1, 4), behind),
		dump(0, 3, done("a", "ALLREDUCE", 1, 4), done("b", "ALLREDUCE", 2, 5), done("c", "ALLREDUCE", 3, 7),
			waiting("grad:0", 9, 10)),
		dump(1, 3, done("a", "ALLREDUCE", 1, 4), done("c", "ALLREDUCE", 3, 7), waiting("other", 8, 1),
			waiting("grad:0", 7, 11)))
	list := func(name string) (got []string) {
		for i, e := range files[name].Entries {
			if e.Record != i || e.PeerTo {
				t.Errorf("%s: record %d of %+v", name, i, e)
			}
			tensor := strings.TrimPrefix(e.Name, "nccl:all_reduce ")
			got = append(got, fmt.Sprintf("%d %s %v %s", e.Number, tensor, e.In[0], e.State))
		}
		return got
	}
	for name, want := range map[string]string{
		"rank_0": "[1 a [4] completed 2 b [5] completed 3 c [7] completed 4 grad_0 [10] scheduled]",
		// rank 1's record of b is gone, and all ranks have agreed on b
		"rank_1": "[1 a [4] completed 2 b [5] completed 3 c [7] completed 4 grad_0 [11] scheduled " +
			"5 other [1] scheduled]",
		"rank_2": "[1 a [4] completed 2 b [5] completed 3 c [7] scheduled]",
	} {
		if got := fmt.Sprint(list(name)); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	zero := files["rank_0"]
	if g := zero.Groups; g["0"].Desc != "default_pg" || g["0"].Ranks != "[0, 1, 2]" || g["3"].Ranks != "[0, 2]" ||
		len(files["rank_1"].Groups) != 1 {
		t.Errorf("groups %+v, of rank 1 %+v", g, files["rank_1"].Groups)
	}
	last := zero.Entries[3]
	if zero.Version != "2.3" || last.Ended != nil || last.Created != 9 || last.DTypes[0] != "Float" ||
		last.Frames[0]["name"] != `ALLREDUCE "grad:0" of float32 [10]` || last.Frames[0]["line"] != 100.0 {
		t.Errorf("version %s, %+v", zero.Version, last)
	}
	if e := zero.Entries[0]; *e.Ended != 1<<40 || !e.Finished {
		t.Errorf("%+v", e)
	}
	if text := files["rank_1"].Entries[1].Frames[0]["name"].(string); !strings.Contains(text, "record is gone") {
		t.Errorf("a record that is not the rank's own says %q", text)
	}
}

// The sizes are those that the analyser compares: one constant where ranks may differ, and the real sizes where they
// must not.
func TestSizesOfEachKind(t *testing.T) {
	of := func(rank int, rows int64) *flight.Dump {
		return dump(rank, 2, done("r", "ALLREDUCE", 1, 2, 3), done("g", "ALLGATHER", 2, 3, 2),
			done("uneven", "ALLGATHER", 3, rows, 2), done("s", "REDUCESCATTER", 4, 8, 2),
			done("odd", "REDUCESCATTER", 5, 7, 2), done("x", "ALLTOALL", 6, rows, 2), done("j", "JOIN", 7),
			done("w", "ALLGATHER", 8, 3, rows))
	}
	files := saved(t, of(0, 4), of(1, 5))
	for i, want := range []string{"all_reduce r [[2 3]] [[2 3]]", "all_gather g [[3 2]] [[6 2]]",
		"all_gather uneven [[0]] [[0]]", "reduce_scatter s [[8 2]] [[4 2]]", "reduce_scatter odd [[0]] [[0]]",
		"all_to_all x [[4 2]] [[]]", "barrier j [[]] [[]]", "all_gather w [[3 4]] [[6 4]]"} {
		e := files["rank_0"].Entries[i]
		if got := fmt.Sprint(strings.TrimPrefix(e.Name, "nccl:"), " ", e.In, " ", e.Out); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if e := files["rank_1"].Entries[7]; fmt.Sprint(e.In) != "[[3 5]]" {
		t.Errorf("a tensor of another width has the sizes %v", e.In)
	}
}

// A process set that was removed and added again numbers its operations anew.
func TestProcessSetsAreNumberedAlone(t *testing.T) {
	in := func(r flight.Record) flight.Record { r.Set = 3; return r }
	files := saved(t, dump(0, 3, done("a", "ALLREDUCE", 5, 1), in(done("p", "ALLREDUCE", 2<<32+1, 1))),
		dump(2, 3, done("a", "ALLREDUCE", 5, 1), in(done("p", "ALLREDUCE", 2<<32+1, 1))))
	for name, f := range files {
		if len(f.Entries) != 2 || f.Entries[0].Number != 5 || f.Entries[1].Number != 1 || f.Entries[1].Group[0] != "3" {
			t.Errorf("%s: %+v", name, f.Entries)
		}
	}
}

func TestValuesOfEveryKind(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 to read pickles")
	}
	value := []any{nil, true, false, 0, -1, 1<<31 - 1, int64(1) << 31, int64(-1) << 40, "é\xff", []any{}, []field{},
		pair{"a", []any{1}}, []field{{"k", []field{{"l", 2}}}}}
	cmd := exec.Command(python, "-c", "import pickle, sys; print(ascii(pickle.load(sys.stdin.buffer)))")
	cmd.Stdin = strings.NewReader(string(pickled(value)))
	out, err := cmd.CombinedOutput()
	if want := `[None, True, False, 0, -1, 2147483647, 2147483648, -1099511627776, '\xe9\ufffd', [], {}, ` +
		`('a', [1]), {'k': {'l': 2}}]` + "\n"; err != nil || string(out) != want {
		t.Errorf("%v, %s\nwant %s", err, out, want)
	}
}

func TestRefusals(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir   string
		dumps []*flight.Dump
		want  string
	}{
		{full, []*flight.Dump{dump(0, 1)}, "has files already, such as x"},
		{t.TempDir(), nil, "there are no dumps"},
		{t.TempDir(), []*flight.Dump{dump(0, 2), dump(0, 2)}, "two dumps of a rank"},
		{t.TempDir(), []*flight.Dump{dump(0, 2), dump(1, 3)}, "several jobs or attempts"},
		{t.TempDir(), []*flight.Dump{dump(0, 1<<30)}, "no job has that many"},
	} {
		if _, err := Save(c.dir, c.dumps); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	missing, err := Save(t.TempDir(), []*flight.Dump{dump(1, 3)})
	if err != nil || fmt.Sprint(missing) != "[0 2]" {
		t.Errorf("%v, missing %v", err, missing)
	}
}

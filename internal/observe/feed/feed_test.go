package feed

import (
	"bytes"
	"cmp"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

func example() *Figures {
	f := &Figures{Waited: 5e9, Marks: 1e6, Requests: 12, NaNs: 1, Pending: 3, Oldest: 7e9, Resident: 3 << 30,
		Fusion: Fusion{Batches: 1000, Tensors: 150000, Bytes: 1 << 40, Threshold: 128 << 20},
		Early:  Early{Operations: 1e5, Bytes: 4096}, Hosts: Hosts{Latency: 50e3, Rate: 125e6, Took: 15e6}}
	f.CPU, f.Samples = 9e9, 1e7
	f.Main = Thread{Running: 8e9, Starved: 3e8, Looks: 40, Asleep: 3, Reading: 2, Locked: 1}
	f.Stack = []Frame{{"src/train.py", "<module>", 80}, {"models/resnet.py", "ResNet.forward", 1 << 20}}
	f.Link = Link{"10.0.0.2", 4e8, 1 << 30}
	f.NIC = NIC{"enp1s0f0", 25e9}
	f.Sets = []int{1, 3}
	f.SetTables([]Table{{0, "users", 1 << 20, 1 << 27, 130000, 400, 399, 5e9, 6e9, 1e8},
		{1, "users", 3, 0, 0, 0, 0, 0, 0, 0}})
	f.Traffic = []Traffic{{ByMemory, 2, 1 << 40, 5e9}, {ByTCP, 3, 1 << 30, 9e9}}
	f.WaitedFor = []Late{{2, 5e9}, {7, 1}}
	f.SetWaits([]Wait{{0, "layer4.conv2.weight", "ALLREDUCE", 2e9, Waiting}, {3, "x", "BARRIER", 5e9, Executing}})
	for c := range Class(NumClasses) {
		w := Work{Op: operation.Allreduce, Class: c, Bytes: 1 << 30, Bus: 3 << 29}
		for i := range int64(1000) {
			w.Times.Observe(i * 20000)
			f.Negotiation.Observe(i * 3000)
			f.Steps.Observe(2e8 + i*1e5)
		}
		f.Works = append(f.Works, w)
	}
	f.Tensors = []Tensors{{operation.Allreduce, tensor.Float32, 0, 1 << 30}, {operation.Broadcast, tensor.Int64,
		OtherSets, 7}}
	return f
}

func TestEncodingKeepsAll(t *testing.T) {
	for _, f := range []*Figures{{}, example()} {
		p := f.Append(nil)
		got, err := Decode(p)
		if err != nil || !reflect.DeepEqual(got, f) {
			t.Errorf("%+v, %v, not %+v", got, err, f)
		}
		if len(p) > 600 {
			t.Errorf("%d bytes for the figures of a usual job", len(p))
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	twice := example()
	twice.Works = append(twice.Works, twice.Works[0])
	set := example()
	set.Tensors[0].Set = OtherSets + 1
	class := example()
	class.Works[0].Class = NumClasses
	kind := example()
	kind.Tensors[1].Op = 200
	way, size, same := example(), example(), example()
	way.Traffic[0].Way = NumWays
	size.Traffic[1].Class = NumClasses
	same.Traffic[1].Way, same.Traffic[1].Class = same.Traffic[0].Way, same.Traffic[0].Class
	large := &Figures{Waited: math.MaxUint64}
	twiceLate, phase, many, long := example(), example(), example(), example()
	twiceLate.WaitedFor[1].Rank = 2
	world, sameSet, sets := example(), example(), example()
	world.Sets[0], sameSet.Sets[1] = 0, 1
	for i := range MostSets {
		sets.Sets = append(sets.Sets, 4+i)
	}
	phase.Waits[0].Phase = numPhases
	sameTable, tables, hot, name := example(), example(), example(), example()
	sameTable.Tables[1].Set = 0
	for i := range MaxTables {
		tables.Tables = append(tables.Tables, Table{Name: strconv.Itoa(i)})
	}
	hot.Tables[0].Hottest = 1e6 + 1
	name.Tables = []Table{{Name: "?"}}
	badName := bytes.Replace(name.Append(nil), []byte("\x01?"), []byte("\x01\xff"), 1)
	deep, line, func2 := example(), example(), example()
	deep.Stack = make([]Frame, maxDepth+1)
	line.Stack[0].Line = maxLine + 1
	func2.Stack[0].Func = strings.Repeat("x", maxFile+1)
	for _, f := range []*Figures{deep, line, func2} { // Append cuts lines and names that are too large, but no stack
		if p := f.Append(nil); f == deep {
			if f, err := Decode(p); err == nil {
				t.Errorf("%+v", f.Stack)
			}
		} else if _, err := Decode(p); err != nil {
			t.Error(err)
		}
	}
	many.Waits = make([]Wait, MaxWaits+1)
	long.Waits[0].Name = strings.Repeat("x", maxName+1)
	for i, p := range [][]byte{nil, {1}, twice.Append(nil), set.Append(nil), class.Append(nil), kind.Append(nil),
		large.Append(nil), twiceLate.Append(nil), phase.Append(nil), many.Append(nil), long.Append(nil),
		way.Append(nil), size.Append(nil), same.Append(nil), world.Append(nil), sameSet.Append(nil),
		sets.Append(nil), sameTable.Append(nil), tables.Append(nil), hot.Append(nil), badName,
		append(example().Append(nil), 0),
		make([]byte, MaxBytes+1)} {
		if f, err := Decode(p); err == nil {
			t.Errorf("%d: %+v", i, f)
		}
	}
	whole := example().Append(nil)
	for n := range whole {
		if _, err := Decode(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for all", n, len(whole))
		}
	}
}

// TestInSet checks that sets behind the end of a full list are unknown.
func TestInSet(t *testing.T) {
	f := &Figures{Sets: []int{2}}
	for i := range 2 {
		for set, want := range [][2]bool{{true, true}, {i == 1, true}, {true, true}, {i == 1, true}, {i == 1, true}} {
			if member, known := f.InSet(set); member != want[0] || known != want[1] {
				t.Errorf("of %v, set %d: %v, %v", f.Sets, set, member, known)
			}
		}
		f.Sets = nil
		for set := range MostSets {
			f.Sets = append(f.Sets, 1+set)
		}
	}
	if member, known := f.InSet(MostSets + 1); member || known {
		t.Errorf("behind the list: %v, %v", member, known)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(example().Append(nil))
	f.Add((&Figures{}).Append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := Decode(p)
		if err != nil {
			return
		}
		again, err := Decode(got.Append(nil))
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%+v, then %+v, %v", got, again, err)
		}
	})
}

// TestNewsAreToldOnce checks that answers are short, and that all of them together tell all.
func TestNewsAreToldOnce(t *testing.T) {
	f := &Figures{}
	for rank := range 3 * mostNews {
		f.WaitedFor = append(f.WaitedFor, Late{rank, uint64(1000 + rank)})
	}
	all := f.WaitedFor
	var told Told
	sums := map[int]uint64{}
	for round := range 4 {
		f.WaitedFor = all
		told.News(f)
		if n := len(f.WaitedFor); round < 3 && n != mostNews || round == 3 && n != 0 {
			t.Errorf("round %d tells of %d ranks", round, n)
		}
		for i, l := range f.WaitedFor {
			sums[l.Rank] += l.Nanoseconds
			if i > 0 && l.Rank <= f.WaitedFor[i-1].Rank {
				t.Errorf("round %d: %v", round, f.WaitedFor)
			}
		}
		if round == 0 && f.WaitedFor[0].Rank != 2*mostNews {
			t.Errorf("the first to be told of is rank %d", f.WaitedFor[0].Rank)
		}
	}
	for _, l := range all {
		if sums[l.Rank] != l.Nanoseconds {
			t.Errorf("%d of %v", sums[l.Rank], l)
		}
	}
}

// TestAStackFits checks that both ends of a stack stay if it is too long, and that an answer with one fits.
func TestAStackFits(t *testing.T) {
	f := example()
	f.Stack = nil
	for i := range 12 {
		f.Stack = append(f.Stack, Frame{strings.Repeat("ö", 200),
			strings.Repeat("f", 100) + string(rune('a'+i)), 1e6 + i})
	}
	f.Waits = nil
	for i := range MaxWaits {
		f.Waits = append(f.Waits, Wait{Name: strings.Repeat("x", maxName-1) + string(rune('a'+i)), Op: "ALLREDUCE"})
	}
	new(Told).News(f)
	p := f.Append(nil)
	got, err := Decode(p)
	if err != nil || len(p) > mostTold || len(got.Waits) == 0 {
		t.Fatalf("%d bytes, %v", len(p), err)
	}
	n := len(got.Stack)
	if n < 2 || got.Stack[0].Line != 1e6 || got.Stack[n-1].Line != 1e6+11 || got.Stack[n-2].Line < 1e6+9 ||
		!strings.HasSuffix(got.Stack[n-1].Func, "fl") {
		t.Errorf("%+v", got.Stack)
	}
}

// TestAnswersFitIntoASecond checks that a rank with very many kinds of work can answer each second, that its answers
// together tell all, and that what changes is told again soon.
func TestAnswersFitIntoASecond(t *testing.T) {
	const second = 1000 // bytes that a rank may tell
	whole := func(round uint64) *Figures {
		f := example()
		f.Works, f.Tensors, f.Stack, f.Traffic, f.Sets = nil, nil, nil, nil, nil
		for i := range MostSets {
			f.Sets = append(f.Sets, 1000+i)
		}
		for way := range NumWays {
			for c := range Class(NumClasses) {
				f.Traffic = append(f.Traffic, Traffic{way, c, round << 50, round << 54})
			}
		}
		for op := range operation.Kind(200) {
			if !op.Valid() {
				continue
			}
			for c := range Class(NumClasses) {
				w := Work{Op: op, Class: c, Bytes: round << 40}
				for b := range w.Times.Counts {
					w.Times.Counts[b] = round << 20
				}
				w.Times.Sum = round << 50
				f.Works = append(f.Works, w)
			}
			f.Tensors = append(f.Tensors, Tensors{op, tensor.Float32, int(op) % MaxSets, round << 30})
		}
		var waits []Wait
		for i := range MaxWaits {
			waits = append(waits, Wait{Name: strings.Repeat("x", maxName-1) + string(rune('a'+i)), Op: "ALLREDUCE"})
		}
		f.SetWaits(waits)
		return f
	}
	var told Told
	known := &Figures{}
	for answer := range 200 {
		f := whole(1)
		told.News(f)
		p := f.Append(nil)
		if len(p) > mostTold || mostTold >= second || len(f.Waits) < 3 {
			t.Fatalf("answer %d has %d bytes, with %d waits", answer, len(p), len(f.Waits))
		}
		got, err := Decode(p)
		if err != nil {
			t.Fatal(err)
		}
		got.Complete(known)
		known = got
		if n := len(f.Works); answer == 0 && n == 0 || answer == 199 && n > 0 {
			t.Errorf("answer %d tells of %d works", answer, n)
		}
	}
	want := whole(1)
	slices.SortFunc(known.Traffic, func(a, b Traffic) int {
		return cmp.Or(cmp.Compare(a.Way, b.Way), cmp.Compare(a.Class, b.Class))
	})
	if !slices.Equal(known.Traffic, want.Traffic) {
		t.Errorf("the traffic that is known is %+v", known.Traffic)
	}
	if len(known.Works) != len(want.Works) || len(known.Tensors) != len(want.Tensors) {
		t.Errorf("%d works and %d tensors are known, not %d and %d", len(known.Works), len(known.Tensors),
			len(want.Works), len(want.Tensors))
	}
	again, tensorsAgain, traffic := map[workKey]bool{}, map[tensorsKey]bool{}, map[trafficKey]bool{}
	for round := range 2 * uint64(len(want.Works)) { // every second answer has room for a work
		f := whole(2 + round) // all have changed
		told.News(f)
		for _, w := range f.Works {
			again[workKey{w.Op, w.Class}] = true
		}
		for _, x := range f.Traffic {
			traffic[trafficKey{x.Way, x.Class}] = true
		}
		for _, n := range f.Tensors {
			tensorsAgain[tensorsKey{n.Op, n.DType, n.Set}] = true
		}
		if p := f.Append(nil); len(p) > mostTold {
			t.Fatalf("answer %d has %d bytes", round, len(p))
		}
		f.Complete(known)
		if known = f; len(known.Works) != len(want.Works) || len(known.Tensors) != len(want.Tensors) {
			t.Fatalf("%d works and %d tensors are known", len(known.Works), len(known.Tensors))
		}
	}
	if len(traffic) != len(want.Traffic) {
		t.Errorf("%d sorts of traffic of %d are told again", len(traffic), len(want.Traffic))
	}
	if len(again) != len(want.Works) {
		t.Errorf("%d works of %d are told again", len(again), len(want.Works))
	}
	if len(tensorsAgain) != len(want.Tensors) {
		t.Errorf("%d tensors of %d are told again", len(tensorsAgain), len(want.Tensors))
	}
}

// TestWaitsAreShort checks what is left out of many operations with long names.
func TestWaitsAreShort(t *testing.T) {
	var waits []Wait
	for i := range 20 {
		waits = append(waits, Wait{Name: strings.Repeat("ä", 200) + string(rune('a'+i)), Op: strings.Repeat("O", 99),
			Age: uint64(i), Phase: Phase(i % 3)})
	}
	f := &Figures{Pending: 20}
	f.SetWaits(waits)
	if len(f.Waits) != MaxWaits || f.Waits[0].Age != 18 || f.Waits[0].Phase != Waiting ||
		!strings.HasSuffix(f.Waits[0].Name, "s") {
		t.Errorf("%+v", f.Waits)
	}
	if got, err := Decode(f.Append(nil)); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBuckets(t *testing.T) {
	for ns, bucket := range map[int64]int{-5: 0, 0: 0, 1: 0, 1000: 0, 1001: 1, 2000: 1, 2001: 2, 4000: 2, 4001: 3,
		int64(Bound(Buckets - 1)): Buckets - 1, int64(Bound(Buckets-1)) + 1: Buckets, math.MaxInt64: Buckets} {
		var h Histogram
		h.Observe(ns)
		if h.Counts[bucket] != 1 || h.Count() != 1 {
			t.Errorf("%v is not in bucket %d: %v", time.Duration(ns), bucket, h.Counts)
		}
		if bucket < Buckets && ns > int64(Bound(bucket)) || bucket > 0 && ns <= int64(Bound(bucket-1)) {
			t.Errorf("bucket %d with the bound %v has %v", bucket, Bound(bucket), time.Duration(ns))
		}
	}
}

func TestClasses(t *testing.T) {
	for bytes, name := range map[uint64]string{0: "1KiB", 1024: "1KiB", 1025: "32KiB", 1 << 20: "1MiB",
		1<<30 + 1: "larger"} {
		if c := ClassOf(bytes); c.String() != name {
			t.Errorf("%d bytes are in class %v", bytes, c)
		}
	}
}

// TestNewsOfTables checks that a rank with many tables tells of all of them by and by, of what has changed alone, and
// that names which look alike when they are cut make one table.
func TestNewsOfTables(t *testing.T) {
	all := func(pulls uint64) *Figures {
		f := &Figures{}
		var tables []Table
		for i := range 2 * MaxTables {
			tables = append(tables, Table{Set: i % 2, Name: strings.Repeat("x", 60) + strconv.Itoa(i/2), Rows: 1 << 30,
				Bytes: 1 << 40, Pulls: pulls, PullTime: 1e9, PushTime: 1e9, Keys: 1 << 40})
		}
		f.SetTables(append(tables, Table{Name: "y" + strings.Repeat("x", 60) + "40"}))
		return f
	}
	if n := len(all(1).Tables); n != MaxTables-1 {
		t.Fatalf("%d tables", n)
	}
	bySetAndName := func(a, b Table) int { return cmp.Or(cmp.Compare(a.Set, b.Set), cmp.Compare(a.Name, b.Name)) }
	var told Told
	last := &Figures{}
	for pulls := range uint64(2) {
		for range MaxTables / 2 {
			f := all(pulls)
			told.News(f)
			p := f.Append(nil)
			got, err := Decode(p)
			if err != nil || len(p) > mostTold {
				t.Fatalf("%d bytes, %v", len(p), err)
			}
			got.Complete(last)
			last = got
		}
		slices.SortFunc(last.Tables, bySetAndName)
		want := all(pulls).Tables
		slices.SortFunc(want, bySetAndName)
		if !reflect.DeepEqual(last.Tables, want) {
			t.Errorf("%+v, want %+v", last.Tables, want)
		}
		f := all(pulls)
		if told.News(f); len(f.Tables) > 0 {
			t.Errorf("tables without news: %+v", f.Tables)
		}
	}
}

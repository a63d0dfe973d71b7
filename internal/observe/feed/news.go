package feed

import (
	"cmp"
	"slices"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Told remembers what a rank has told the launcher, so that unchanged figures are not told again: see News and
// Figures.Complete.
type Told struct {
	of      map[int]uint64 // nanoseconds of each WaitedFor
	works   map[workKey]toldWork
	tensors map[tensorsKey]toldTensors
	traffic map[trafficKey]toldTraffic
	tables  map[tableKey]toldTable
	answer  uint64 // the number of this one
}

type (
	workKey struct {
		op    operation.Kind
		class Class
	}
	toldWork struct{ sum, bytes, answer uint64 }

	tensorsKey struct {
		op    operation.Kind
		dtype tensor.DType
		set   int
	}
	toldTensors struct{ count, answer uint64 }

	trafficKey struct {
		way   Way
		class Class
	}
	toldTraffic struct {
		Traffic
		answer uint64
	}

	tableKey struct {
		set  int
		name string
	}
	toldTable struct {
		Table
		answer uint64
	}
)

const (
	// mostNews is how many ranks one answer tells of.
	mostNews = 16
	// mostTold is how many bytes an answer has. A rank may tell 1 kB a second, and a job that somebody looks at is
	// asked each second: after a longer answer the rank could not give the next one.
	mostTold = 900
	// mostOfWaits is how many bytes of these Waits and Sets have. The first one of the Waits is always told.
	mostOfWaits = 500
	// mostOfStack is how many bytes a Stack has. They are taken from the Waits.
	mostOfStack = 320
	// mostOfTraffic is how many bytes the Traffic has: some seven ways and classes of sizes.
	mostOfTraffic = 140
	// mostOfTables is how many bytes the Tables have: some four.
	mostOfTables = 200
)

// News leaves in f only what has not been told, and no more than fits into an answer. The works, tensors and traffic
// that have changed and were not told for longest come first; what is left out is told later. So an answer stays small,
// whatever the job does. Waits that are left out make the list incomplete, as more than MaxWaits do.
func (t *Told) News(f *Figures) {
	t.answer++
	t.lateNews(f)
	mostWaits := mostOfWaits - len(appendSets(nil, f.Sets))
	if f.fitStack() {
		mostWaits -= mostOfStack
	}
	works, tensors, traffic, waits, tables := f.Works, f.Tensors, f.Traffic, f.Waits, f.Tables
	f.Works, f.Tensors, f.Traffic, f.Waits, f.Tables = nil, nil, nil, nil, nil
	const lengths = 5 // of the lists, which need a second byte from 128 elements on
	size := len(f.Append(nil)) + lengths
	ofWaits := 0
	for i := range waits {
		n := len(waits[i].append(nil))
		if i > 0 && ofWaits+n > mostWaits {
			break
		}
		ofWaits += n
		f.Waits = waits[:i+1]
	}
	room := mostTold - size - ofWaits
	f.Traffic = t.newTraffic(traffic, &room)
	f.Tables = t.newTables(tables, &room)
	if t.answer%2 == 0 { // tensors and works take turns: each alone may fill every answer
		f.Tensors = t.newTensors(tensors, &room)
	}
	f.Works = t.newWorks(works, &room)
	if t.answer%2 != 0 {
		f.Tensors = t.newTensors(tensors, &room)
	}
}

// fitStack drops functions until the Stack has mostOfStack bytes: the outermost one and the inner ones stay. False if
// there is no Stack.
func (f *Figures) fitStack() bool {
	for len(f.Stack) > 2 && (len(f.Stack) > maxDepth || len(appendStack(nil, f.Stack)) > mostOfStack) {
		f.Stack = slices.Delete(f.Stack, 1, 2)
	}
	return len(f.Stack) > 0
}

// lateNews leaves in WaitedFor what is new, of the mostNews ranks with the most.
func (t *Told) lateNews(f *Figures) {
	news := make([]Late, 0, len(f.WaitedFor))
	for _, l := range f.WaitedFor {
		if n := l.Nanoseconds - t.of[l.Rank]; n > 0 {
			news = append(news, Late{l.Rank, n})
		}
	}
	slices.SortFunc(news, func(a, b Late) int { return cmp.Compare(b.Nanoseconds, a.Nanoseconds) })
	news = news[:min(len(news), mostNews)]
	slices.SortFunc(news, func(a, b Late) int { return cmp.Compare(a.Rank, b.Rank) })
	if t.of == nil {
		t.of = map[int]uint64{}
	}
	for _, l := range news {
		t.of[l.Rank] += l.Nanoseconds
	}
	f.WaitedFor = news
}

// newTraffic is the traffic to tell of. It takes its bytes from room.
func (t *Told) newTraffic(all []Traffic, room *int) (news []Traffic) {
	if t.traffic == nil {
		t.traffic = map[trafficKey]toldTraffic{}
	}
	key := func(x Traffic) trafficKey { return trafficKey{x.Way, x.Class} }
	all = slices.DeleteFunc(slices.Clone(all), func(x Traffic) bool { return t.traffic[key(x)].Traffic == x })
	slices.SortStableFunc(all, func(a, b Traffic) int {
		return cmp.Compare(t.traffic[key(a)].answer, t.traffic[key(b)].answer)
	})
	most := min(*room, mostOfTraffic)
	for i := range all {
		size := len(all[i].append(nil))
		if size > most {
			return all[:i]
		}
		most -= size
		*room -= size
		t.traffic[key(all[i])] = toldTraffic{all[i], t.answer}
	}
	return all
}

// newTables are the tables to tell of. It takes their bytes from room.
func (t *Told) newTables(all []Table, room *int) (news []Table) {
	if t.tables == nil {
		t.tables = map[tableKey]toldTable{}
	}
	all = slices.DeleteFunc(slices.Clone(all), func(x Table) bool { return t.tables[x.key()].Table == x })
	slices.SortStableFunc(all, func(a, b Table) int {
		return cmp.Compare(t.tables[a.key()].answer, t.tables[b.key()].answer)
	})
	most := min(*room, mostOfTables)
	for i := range all {
		size := len(all[i].append(nil))
		if size > most {
			return all[:i]
		}
		most -= size
		*room -= size
		t.tables[all[i].key()] = toldTable{all[i], t.answer}
	}
	return all
}

// key tells a rank's tables apart.
func (t *Table) key() tableKey { return tableKey{t.Set, t.Name} }

// newWorks are the works to tell of. It takes their bytes from room.
func (t *Told) newWorks(all []Work, room *int) (news []Work) {
	if t.works == nil {
		t.works = map[workKey]toldWork{}
	}
	key := func(w *Work) workKey { return workKey{w.Op, w.Class} }
	all = slices.DeleteFunc(slices.Clone(all), func(w Work) bool {
		before, known := t.works[key(&w)]
		return known && before.sum == w.Times.Sum && before.bytes == w.Bytes
	})
	slices.SortStableFunc(all, func(a, b Work) int {
		return cmp.Compare(t.works[key(&a)].answer, t.works[key(&b)].answer)
	})
	for i := range all {
		w := &all[i]
		size := len(w.append(nil))
		if size > *room {
			return all[:i]
		}
		*room -= size
		t.works[key(w)] = toldWork{w.Times.Sum, w.Bytes, t.answer}
	}
	return all
}

// newTensors are the tensors to tell of. It takes their bytes from room.
func (t *Told) newTensors(all []Tensors, room *int) (news []Tensors) {
	if t.tensors == nil {
		t.tensors = map[tensorsKey]toldTensors{}
	}
	key := func(n *Tensors) tensorsKey { return tensorsKey{n.Op, n.DType, n.Set} }
	all = slices.DeleteFunc(slices.Clone(all), func(n Tensors) bool { return t.tensors[key(&n)].count == n.Count })
	slices.SortStableFunc(all, func(a, b Tensors) int {
		return cmp.Compare(t.tensors[key(&a)].answer, t.tensors[key(&b)].answer)
	})
	for i := range all {
		n := &all[i]
		size := len(n.append(nil))
		if size > *room {
			return all[:i]
		}
		*room -= size
		t.tensors[key(n)] = toldTensors{n.Count, t.answer}
	}
	return all
}

// Complete adds to f, which News has shortened, the works, tensors and traffic that f lacks. They are those of before,
// the previous answer of the same rank.
func (f *Figures) Complete(before *Figures) {
	for i := range before.Works {
		b := &before.Works[i]
		if !slices.ContainsFunc(f.Works, func(w Work) bool { return w.Op == b.Op && w.Class == b.Class }) {
			f.Works = append(f.Works, *b)
		}
	}
	for _, b := range before.Traffic {
		if !slices.ContainsFunc(f.Traffic, func(t Traffic) bool { return t.Way == b.Way && t.Class == b.Class }) {
			f.Traffic = append(f.Traffic, b)
		}
	}
	for _, b := range before.Tables {
		if !slices.ContainsFunc(f.Tables, func(t Table) bool { return t.key() == b.key() }) {
			f.Tables = append(f.Tables, b)
		}
	}
	for _, b := range before.Tensors {
		if !slices.ContainsFunc(f.Tensors, func(n Tensors) bool {
			return n.Op == b.Op && n.DType == b.DType && n.Set == b.Set
		}) {
			f.Tensors = append(f.Tensors, b)
		}
	}
}

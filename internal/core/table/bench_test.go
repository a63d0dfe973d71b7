package table

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/slots"
)

// BenchmarkPull pulls 100,000 random rows of 16 numbers of 2,000,000, by turns with what bounds it: as many copies of
// random rows from memory of the same kind, whose places are known. It reports the median of the ratios of the pairs.
func BenchmarkPull(b *testing.B) { benchmarkPull(b, 16) }

// BenchmarkPullLong is the same for rows of 128 numbers.
func BenchmarkPullLong(b *testing.B) { benchmarkPull(b, 128) }

func benchmarkPull(b *testing.B, dim int) {
	const rows, batch = 2_000_000, 100_000
	table := New(options(RowwiseAdagrad, dim))
	defer table.Close()
	keys, out, at := make([]int64, batch), make([]float32, batch*dim), make([]uint32, batch)
	for n := 0; n < rows; n += batch {
		for i := range keys {
			keys[i] = int64(n + i)
		}
		if err := table.Pull(keys, out, true); err != nil {
			b.Fatal(err)
		}
	}
	var floors, pulls, ratios []float64
	for b.Loop() {
		b.StopTimer()
		for i := range at {
			at[i] = rand.Uint32N(rows)
		}
		began := time.Now()
		for i, id := range at {
			copy(out[i*dim:][:dim], table.rows.weights(table.rows.at(id)))
		}
		floor := time.Since(began)
		for i := range keys {
			keys[i] = rand.Int64N(rows)
		}
		b.StartTimer()
		began = time.Now()
		if err := table.Pull(keys, out, true); err != nil {
			b.Fatal(err)
		}
		pull := time.Since(began)
		floors, pulls = append(floors, floor.Seconds()), append(pulls, pull.Seconds())
		ratios = append(ratios, pull.Seconds()/floor.Seconds())
	}
	b.ReportMetric(median(floors)/batch*1e9, "floor-ns/row")
	b.ReportMetric(median(pulls)/batch*1e9, "pull-ns/row")
	b.ReportMetric(median(ratios), "pull/floor")
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// BenchmarkFill finds the distinct ones of 100,000 random keys.
func BenchmarkFill(b *testing.B) {
	const batch = 100_000
	var l Lookup
	o, owners, keys := options(SGD, 1), slots.Assign(1), make([]int64, batch)
	for b.Loop() {
		b.StopTimer()
		for i := range keys {
			keys[i] = rand.Int64()
		}
		b.StartTimer()
		if err := l.Fill(&o, owners, keys, Padding{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/key")
}

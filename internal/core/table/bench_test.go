package table

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkPull reads 100,000 random rows of 64 bytes of 2,000,000; BenchmarkReads reads as many from an array, which
// bounds it.
func BenchmarkPull(b *testing.B) {
	const rows, dim, batch = 2_000_000, 16, 100_000
	table := New(options(RowwiseAdagrad, dim))
	defer table.Close()
	keys, out := make([]int64, batch), make([]float32, batch*dim)
	for n := 0; n < rows; n += batch {
		for i := range keys {
			keys[i] = int64(n + i)
		}
		if err := table.Pull(keys, out, true); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		b.StopTimer()
		for i := range keys {
			keys[i] = rand.Int64N(rows)
		}
		b.StartTimer()
		if err := table.Pull(keys, out, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReads(b *testing.B) {
	const rows, dim, batch = 2_000_000, 16, 100_000
	all, out, at := make([]float32, rows*22), make([]float32, batch*dim), make([]int, batch)
	for i := range all {
		all[i] = 1
	}
	for b.Loop() {
		b.StopTimer()
		for i := range at {
			at[i] = rand.IntN(rows)
		}
		b.StartTimer()
		for i, row := range at {
			copy(out[i*dim:][:dim], all[row*22:][:dim])
		}
	}
}

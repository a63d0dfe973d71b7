package hvd_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gorovod/gorovod/hvd"
)

// Embeddings of users whose numbers are any int64. Each process pulls the rows of its batch, and pushes their
// gradients.
func ExampleTable() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	ctx := context.Background()
	users, err := hvd.NewTable(hvd.TableOptions{Name: "users", Dim: 2, Zeros: true, Optimizer: hvd.SGD(0.5)})
	if err != nil {
		log.Fatal(err)
	}
	batch := []int64{9000000000, -1, 9000000000}
	rows := make([]float32, 2*len(batch))
	if err := users.Pull(ctx, batch, rows); err != nil {
		log.Fatal(err)
	}
	gradients := []float32{1, 0, 2, 2, 1, 0}
	if err := users.Push(ctx, batch, gradients); err != nil {
		log.Fatal(err)
	}
	if err := users.Pull(ctx, batch, rows); err != nil {
		log.Fatal(err)
	}
	fmt.Println(users.Len(), rows)
	// Output: 2 [-1 0 -1 -1 -1 0]
}

// A table that is saved, and loaded by a job with any number of processes.
func ExampleTable_Save() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	users, err := hvd.NewTable(hvd.TableOptions{Name: "users", Dim: 2, Zeros: true, Optimizer: hvd.SGD(1)})
	if err != nil {
		log.Fatal(err)
	}
	ctx, dir := context.Background(), filepath.Join(os.TempDir(), "users") // on storage that all hosts share
	defer os.RemoveAll(dir)
	if err := users.Push(ctx, []int64{7}, []float32{1, 2}); err != nil {
		log.Fatal(err)
	}
	if err := users.Save(dir); err != nil {
		log.Fatal(err)
	}
	if err := users.Push(ctx, []int64{7}, []float32{100, 100}); err != nil {
		log.Fatal(err)
	}
	if err := users.Load(dir); err != nil {
		log.Fatal(err)
	}
	row := make([]float32, 2)
	err = users.Pull(ctx, []int64{7}, row)
	fmt.Println(row, err)
	// Output: [-1 -2] <nil>
}

// Two tables travel in one exchange.
func ExamplePullTables() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	users, err := hvd.NewTable(hvd.TableOptions{Name: "users", Dim: 1, Zeros: true, Optimizer: hvd.Adagrad(0.1)})
	if err != nil {
		log.Fatal(err)
	}
	films, err := hvd.NewTable(hvd.TableOptions{Name: "films", Dim: 3, Zeros: true, Keys: 100,
		Optimizer: hvd.Adam(0.1)})
	if err != nil {
		log.Fatal(err)
	}
	user, film := make([]float32, 1), make([]float32, 6)
	err = hvd.PullTables(context.Background(), hvd.TableBatch{Table: users, Keys: []int64{1 << 60}, Rows: user},
		hvd.TableBatch{Table: films, Keys: []int64{7, 99}, Rows: film})
	fmt.Println(user, film, err)
	// Output: [0] [0 0 0 0 0 0] <nil>
}

package process

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
)

// rankRole makes this test's binary a rank: it initialises twice, sums, and prints its results.
const rankRole = "PROCESS_TEST_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(rankRole) == "" {
		os.Exit(m.Run())
	}
	for range 2 {
		if err := Init(context.Background(), os.LookupEnv, nil); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		c := World().Place
		data := binary.NativeEndian.AppendUint32(nil, math.Float32bits(float32(c.Rank)))
		e, err := Enqueue(&engine.Op{Type: operation.Allreduce, DType: tensor.Float32, ReduceOp: tensor.Sum, Name: "x",
			Shape: tensor.Shape{1}, Prescale: 1, Postscale: 1, In: data, Out: data})
		if err != nil || !e.Wait(20*time.Second) || e.Err() != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(c.Rank, c.Size, c.LocalRank, c.LocalSize, c.CrossRank, c.CrossSize, World().Homogeneous,
			math.Float32frombits(binary.NativeEndian.Uint32(data)))
		Shutdown()
	}
	os.Exit(0)
}

// ranks runs one process with each environment, and returns the processes' outputs.
func ranks(t *testing.T, envs ...[]string) []string {
	t.Helper()
	said := make([]string, len(envs))
	commands := make([]*exec.Cmd, len(envs))
	outputs := make([]bytes.Buffer, len(envs))
	for i, env := range envs {
		c := exec.CommandContext(t.Context(), os.Args[0])
		c.Env = append(env, rankRole+"=1", "HOROVOD_GLOO_TIMEOUT_SECONDS=20")
		c.Stdout, c.Stderr = &outputs[i], &outputs[i]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		commands[i] = c
	}
	for i, c := range commands {
		c.Wait()
		said[i] = outputs[i].String()
	}
	return said
}

// openMPI is the environment of a rank on one of several hosts.
func openMPI(rank, size, localRank, localSize int, more ...string) []string {
	return append([]string{fmt.Sprint("OMPI_COMM_WORLD_RANK=", rank), fmt.Sprint("OMPI_COMM_WORLD_SIZE=", size),
		fmt.Sprint("OMPI_COMM_WORLD_LOCAL_RANK=", localRank), fmt.Sprint("OMPI_COMM_WORLD_LOCAL_SIZE=", localSize),
		"PMIX_NAMESPACE=4711"}, more...)
}

// Ranks of another launcher meet by a file in a shared directory, on hosts of different sizes, although an earlier
// start of the job has left a file that leads nowhere.
func TestRanksMeetByAFile(t *testing.T) {
	dir := t.TempDir()
	env := func(rank, localRank, localSize int, host string) []string {
		return openMPI(rank, 3, localRank, localSize, "GOROVOD_RENDEZVOUS_DIR="+dir, "HOROVOD_HOSTNAME="+host)
	}
	// Rank 0 comes last, and leaves something behind.
	lost := exec.CommandContext(t.Context(), os.Args[0])
	lost.Env = append(env(0, 0, 2, "a"), rankRole+"=1")
	if err := lost.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if left, _ := filepath.Glob(filepath.Join(dir, "rendezvous-*")); len(left) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("rank 0 leaves no file")
		}
	}
	lost.Process.Kill()
	lost.Wait()

	said := ranks(t, env(2, 0, 1, "b"), env(1, 1, 2, "a"), env(0, 0, 2, "a"))
	for i, want := range []string{"2 3 0 1 1 2 false 3\n", "1 3 1 2 0 1 false 3\n", "0 3 0 2 0 2 false 3\n"} {
		if said[i] != want+want {
			t.Errorf("%q, want %q twice", said[i], want)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Ranks that know the secret find rank 0, because its place follows from the secret.
func TestRanksMeetByTheSecretAlone(t *testing.T) {
	key := "HOROVOD_SECRET_KEY=" + hex.EncodeToString([]byte(t.Name()))
	env := func(rank int) []string {
		return []string{fmt.Sprint("RANK=", rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=",
			os.Getpid()), key}
	}
	said := ranks(t, env(0), env(1))
	for r, text := range said {
		if want := fmt.Sprintf("%d 2 %d 2 0 1 true 1\n", r, r); text != want+want {
			t.Errorf("%q, want %q twice", text, want)
		}
	}
}

// Without a way to hand over a secret, the ranks are refused at once, with advice.
func TestNoWayToMeet(t *testing.T) {
	for _, text := range ranks(t, []string{"PMI_RANK=0", "PMI_SIZE=2"}) {
		for _, want := range []string{"mpiexec (PMI) has started 2 ranks", "HOROVOD_SECRET_KEY",
			"GOROVOD_RENDEZVOUS_DIR"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %q", want, text)
			}
		}
	}
}

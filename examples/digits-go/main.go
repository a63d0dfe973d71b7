// Command digits trains a two-layer perceptron on handwritten digits,
// data-parallel, in plain Go.
//
//	go build -o digits ./examples/digits-go
//	horovodrun -np 4 ./digits
//
// It runs alone too. The batch size is that of all ranks together.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/gorovod/gorovod/examples/data"
	"github.com/gorovod/gorovod/hvd"
)

const trainSize = 1500 // of 1797 digits; divisible by 2, 3 and 4

func main() {
	epochs := flag.Int("epochs", 24, "passes over the training set")
	batch := flag.Int("batch-size", 60, "images per step, of all ranks together")
	rate := flag.Float64("lr", 0.1, "learning rate")
	seed := flag.Uint64("seed", 42, "seed of the weights and of the order of images")
	flag.Parse()
	if err := hvd.Init(); err != nil {
		fmt.Fprintln(os.Stderr, "digits:", err)
		os.Exit(1)
	}
	rank := hvd.Rank()
	err := train(context.Background(), *epochs, *batch, float32(*rate), *seed)
	hvd.Shutdown()
	if err != nil {
		fmt.Fprintf(os.Stderr, "digits: rank %d: %v\n", rank, err)
		os.Exit(1)
	}
}

func train(ctx context.Context, epochs, batch int, rate float32, seed uint64) error {
	rank, size := hvd.Rank(), hvd.Size()
	if batch <= 0 || batch > trainSize || batch%size != 0 {
		return fmt.Errorf("a batch of %d images cannot be split evenly over %d ranks", batch, size)
	}
	digits, err := data.Digits()
	if err != nil {
		return err
	}
	// The same order on every rank.
	rng := rand.New(rand.NewPCG(0, 0))
	rng.Shuffle(len(digits), func(i, j int) { digits[i], digits[j] = digits[j], digits[i] })
	train, test := digits[:trainSize], digits[trainSize:]

	net, grad, velocity := newNetwork(), newNetwork(), newNetwork()
	net.randomize(rand.New(rand.NewPCG(seed, uint64(rank)))) // different everywhere, until rank 0's are broadcast
	for _, p := range net.params() {
		if err := hvd.Broadcast(ctx, p.name, p.values, 0); err != nil {
			return err
		}
	}

	if rank == 0 {
		fmt.Printf("training on %d digits, %d rank(s), batches of %d\n", len(train), size, batch)
	}
	var right float64
	var spent, waited time.Duration
	share := make([]data.Digit, batch/size)
	steps := len(train) / batch
	for epoch := range epochs {
		order := rand.New(rand.NewPCG(seed, uint64(epoch))).Perm(len(train))
		start := time.Now()
		loss := make([]float32, steps)
		for step := range steps {
			for i := range share {
				share[i] = train[order[step*batch+i*size+rank]]
			}
			loss[step] = net.gradients(grad, share)
			wait := time.Now()
			if err := average(ctx, grad); err != nil {
				return err
			}
			waited += time.Since(wait)
			net.step(grad, velocity, rate)
		}
		if err := hvd.Allreduce(ctx, "loss", loss); err != nil {
			return err
		}
		spent += time.Since(start)
		if right, err = accuracy(ctx, net, test); err != nil {
			return err
		}
		if rank == 0 {
			fmt.Printf("epoch %2d/%d  loss %.4f  test accuracy %.4f\n", epoch+1, epochs, mean(loss), right)
		}
	}

	same, err := identical(ctx, net)
	if err != nil {
		return err
	}
	if rank == 0 {
		verdict := "bit-identical on all ranks"
		if !same {
			verdict = "DIFFER between ranks"
		}
		fmt.Printf("test accuracy          %.4f (%d digits that no rank has trained on)\n", right, len(test))
		fmt.Printf("speed                  %.0f images/s, all ranks together\n",
			float64(epochs*steps*batch)/max(spent.Seconds(), 1e-9))
		fmt.Printf("waiting for gradients  %.1f%% of rank 0's time, slower ranks included\n",
			100*waited.Seconds()/max(spent.Seconds(), 1e-9))
		fmt.Printf("weights                %s\n", verdict)
	}
	if !same {
		return fmt.Errorf("the ranks ended with different weights")
	}
	return nil
}

// average replaces each gradient by its mean over all ranks. All of them are
// submitted before the first is waited for, so that they travel together.
func average(ctx context.Context, grad network) error {
	var handles [4]*hvd.Handle
	for i, p := range grad.params() {
		var err error
		if handles[i], err = hvd.AllreduceAsync("grad."+p.name, p.values); err != nil {
			return err
		}
	}
	for _, h := range handles {
		if err := h.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// accuracy is the share of the digits that are recognised; each rank tries a
// part of them.
func accuracy(ctx context.Context, net network, digits []data.Digit) (float64, error) {
	right := []float64{0}
	for i := hvd.Rank(); i < len(digits); i += hvd.Size() {
		if net.classify(&digits[i].Image) == digits[i].Label {
			right[0]++
		}
	}
	err := hvd.Allreduce(ctx, "right", right, hvd.WithOp(hvd.Sum))
	return right[0] / float64(len(digits)), err
}

// identical reports whether all ranks hold the same weights, bit for bit.
func identical(ctx context.Context, net network) (bool, error) {
	hash := sha256.New()
	for _, p := range net.params() {
		if err := binary.Write(hash, binary.LittleEndian, p.values); err != nil {
			return false, err
		}
	}
	digest := hash.Sum(nil)
	digests, err := hvd.Allgather(ctx, "digests", digest)
	if err != nil {
		return false, err
	}
	return bytes.Equal(digests, bytes.Repeat(digest, hvd.Size())), nil
}

func mean(values []float32) (sum float32) {
	for _, v := range values {
		sum += v / float32(len(values))
	}
	return sum
}

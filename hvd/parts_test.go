package hvd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// The parts of the ranks' program of TestJobs. Each is called on all of the n ranks, and returns the first error.

func grouped(ctx context.Context, r, n int) error {
	for range 3 { // the later ones come from the cache
		rows := [][]int32{slices.Repeat([]int32{int32(r)}, r+1), {int32(10 * r)}, nil}
		all, err := hvd.GroupedAllgather(ctx, "ggather", rows)
		if err != nil || len(all) != 3 || len(all[0]) != n*(n+1)/2 || len(all[1]) != n ||
			all[1][n-1] != int32(10*(n-1)) || len(all[2]) != 0 {
			return fmt.Errorf("grouped allgather %v: %w", all, err)
		}
		data := [][]float64{slices.Repeat([]float64{float64(r)}, 2*n+1), slices.Repeat([]float64{3}, n)}
		parts, err := hvd.GroupedReducescatter(ctx, "gscatter", data)
		want := 2
		if r == 0 {
			want = 3
		}
		if err != nil || len(parts) != 2 || len(parts[0]) != want || parts[0][0] != float64(n-1)/2 ||
			len(parts[1]) != 1 || parts[1][0] != 3 {
			return fmt.Errorf("grouped reducescatter %v: %w", parts, err)
		}
	}
	if none, err := hvd.GroupedAllgather[int8](ctx, "none", nil); err != nil || len(none) != 0 {
		return fmt.Errorf("a group of nothing %v: %w", none, err)
	}
	if _, err := hvd.GroupedReducescatterAsync("gbad", [][]bool{{true}, {false}}, hvd.WithPrescale(2)); !errors.Is(err,
		hvd.ErrInvalidArgument) {
		return fmt.Errorf("grouped reducescatter of bools with a factor: %w", err)
	}
	return nil
}

// twice gives two operations of a group the same memory, which both write.
func twice(ctx context.Context, _, n int) error {
	data := []float32{1, 2}
	err := hvd.GroupedAllreduce(ctx, "twice", [][]float32{data, data[1:]}, hvd.WithOp(hvd.Sum))
	if !errors.Is(err, hvd.ErrInvalidArgument) || !strings.Contains(err.Error(),
		`writes memory that Allreduce of tensor "twice_1of2", of the same group, writes, too`) {
		return fmt.Errorf("a slice twice in a group: %w", err)
	}
	if data[0] != float32(n) || data[1] != float32(2*n) {
		return fmt.Errorf("the rest of that group: %v", data)
	}
	return nil
}

// async runs all operations at once, and waits for the last one first.
func async(ctx context.Context, r, n int) error {
	b := []int64{int64(r)}
	broadcast, err := hvd.BroadcastAsync("abroadcast", b, n-1)
	if err != nil {
		return err
	}
	gathered, err := hvd.AllgatherAsync("agather", []int16{int16(r), 5})
	if err != nil {
		return err
	}
	splits := make([]int, n)
	var send []uint8
	for m := range splits {
		splits[m] = r + 1
		send = append(send, slices.Repeat([]uint8{uint8(m)}, r+1)...)
	}
	exchanged, err := hvd.AlltoallAsync("aa2a", send, splits)
	if err != nil {
		return err
	}
	scattered, err := hvd.ReducescatterAsync("ascatter", slices.Repeat([]float32{2}, n), hvd.WithOp(hvd.Sum))
	if err != nil {
		return err
	}
	group, err := hvd.GroupedAllgatherAsync("agroup", [][]uint16{{uint16(r)}, {1, 2}})
	if err != nil {
		return err
	}

	for i, want := range []int{n, 2 * n} {
		if out, err := group[i].Wait(ctx); err != nil || len(out) != want {
			return fmt.Errorf("asynchronous grouped allgather %d: %v: %w", i, out, err)
		}
	}
	if out, err := scattered.Wait(ctx); err != nil || !slices.Equal(out, []float32{float32(2 * n)}) {
		return fmt.Errorf("asynchronous reducescatter %v: %w", out, err)
	}
	out, err := exchanged.Wait(ctx)
	if err != nil || !slices.Equal(out, slices.Repeat([]uint8{uint8(r)}, n*(n+1)/2)) {
		return fmt.Errorf("asynchronous alltoall %v: %w", out, err)
	}
	for m, k := range exchanged.ReceivedSplits() {
		if k != m+1 {
			return fmt.Errorf("received splits %v", exchanged.ReceivedSplits())
		}
	}
	all, err := gathered.Wait(ctx)
	if err != nil || len(all) != 2*n || all[2*(n-1)] != int16(n-1) || !gathered.Done() ||
		gathered.ReceivedSplits() != nil {
		return fmt.Errorf("asynchronous allgather %v: %w", all, err)
	}
	if _, err := gathered.Wait(ctx); err == nil {
		return errors.New("a result can be waited for twice")
	}
	if err := broadcast.Wait(ctx); err != nil || b[0] != int64(n-1) {
		return fmt.Errorf("asynchronous broadcast %v: %w", b, err)
	}
	if _, err := hvd.AlltoallAsync("aa2a", send, []int{-1}); !errors.Is(err, hvd.ErrInvalidArgument) {
		return fmt.Errorf("a negative split: %w", err)
	}
	if _, err := hvd.BroadcastAsync("abroadcast", b, n); !errors.Is(err, hvd.ErrInvalidArgument) {
		return fmt.Errorf("a root that there is not: %w", err)
	}
	return nil
}

type (
	celsius float64
	level   int16
	flag    bool
)

// elements reduces numbers whose results are right only if they are reduced as their own type.
func elements(ctx context.Context, r, n int) error {
	half := []hvd.Float16{hvd.NewFloat16(1.5), hvd.NewFloat16(-2)}
	if err := hvd.Allreduce(ctx, "half", half, hvd.WithOp(hvd.Sum)); err != nil || half[0].Float32() != 1.5*float32(
		n) || half[1].Float32() != -2*float32(n) {
		return fmt.Errorf("float16 %v: %w", half, err)
	}
	brain := []hvd.BFloat16{hvd.NewBFloat16(3), hvd.NewBFloat16(float32(r))}
	if err := hvd.Allreduce(ctx, "brain", brain); err != nil || brain[0].Float32() != 3 ||
		brain[1].Float32() != float32(n-1)/2 {
		return fmt.Errorf("bfloat16 %v: %w", brain, err)
	}
	yes := []bool{r == 0, false, true}
	if err := hvd.Allreduce(ctx, "or", yes, hvd.WithOp(hvd.Sum)); err != nil ||
		!slices.Equal(yes, []bool{true, false, true}) {
		return fmt.Errorf("bool %v: %w", yes, err)
	}
	flags := []flag{r == 0, true}
	if err := hvd.Allreduce(ctx, "and", flags, hvd.WithOp(hvd.Min)); err != nil || flags[0] != (n == 1) ||
		!bool(flags[1]) {
		return fmt.Errorf("a type defined as bool %v: %w", flags, err)
	}
	warm := []celsius{-0.5, celsius(r)}
	if err := hvd.Allreduce(ctx, "warm", warm, hvd.WithOp(hvd.Max)); err != nil || warm[0] != -0.5 ||
		warm[1] != celsius(n-1) {
		return fmt.Errorf("a type defined as float64 %v: %w", warm, err)
	}
	const odd = 1 + 0x1p-12 // no 16-bit float
	fine := []float32{odd}
	sent := n > 1 && os.Getenv("GOROVOD_TRANSPORT") == "tcp"
	if err := hvd.Allreduce(ctx, "fine", fine, hvd.WithOp(hvd.Sum), hvd.WithCompression(hvd.BF16)); err != nil ||
		(fine[0] != odd*float32(n)) != sent || int(fine[0]) != n {
		return fmt.Errorf("compressed %v: %w", fine, err)
	}
	levels, err := hvd.Allgather(ctx, "levels", []level{level(-r)})
	if err != nil || len(levels) != n || levels[n-1] != level(1-n) {
		return fmt.Errorf("a type defined as int16 %v: %w", levels, err)
	}
	pair := []time.Duration{time.Duration(r), time.Hour}
	if err := hvd.Broadcast(ctx, "pair", pair, 0); err != nil || pair[0] != 0 || pair[1] != time.Hour {
		return fmt.Errorf("durations %v: %w", pair, err)
	}
	return nil
}

// unregistered gives operations sets that are not registered, or no longer registered.
func unregistered(ctx context.Context, r, n int) error {
	if n < 3 {
		return nil // the only sets are the world and those of one rank
	}
	set := hvd.NewProcessSet(1, 0)
	refused := func(when string) error {
		x := []float32{1}
		_, grouped := hvd.GroupedAllreduceAsync("unset", [][]float32{x}, hvd.WithProcessSet(set))
		_, gathered := hvd.AllgatherAsync("unset", x, hvd.WithProcessSet(set))
		for i, err := range []error{
			hvd.Allreduce(ctx, "unset", x, hvd.WithProcessSet(set)), grouped, gathered,
			hvd.Barrier(ctx, hvd.WithProcessSet(set)), hvd.RemoveProcessSet(set),
		} {
			if !errors.Is(err, hvd.ErrUnknownSet) || !errors.Is(err, hvd.ErrInvalidArgument) ||
				!strings.Contains(err.Error(), "[0 1]") || !strings.Contains(err.Error(), "AddProcessSet") {
				return fmt.Errorf("call %d with a set %s: %w", i, when, err)
			}
		}
		return nil
	}
	if err := refused("never registered"); err != nil {
		return err
	}
	if err := hvd.AddProcessSet(set); err != nil {
		return err
	}
	if set.Included() {
		if out, err := hvd.Reducescatter(ctx, "inset", []int32{1, 2}, hvd.WithProcessSet(set),
			hvd.WithOp(hvd.Sum)); err != nil || len(out) != 1 || out[0] != int32(2*(r+1)) {
			return fmt.Errorf("in a set of two %v: %w", out, err)
		}
	} else if err := hvd.Barrier(ctx, hvd.WithProcessSet(set)); !errors.Is(err, hvd.ErrInvalidArgument) ||
		errors.Is(err, hvd.ErrUnknownSet) {
		return fmt.Errorf("outside of the set: %w", err)
	}
	if err := hvd.Barrier(ctx, hvd.WithProcessSet(nil)); err != nil { // all processes
		return err
	}
	if err := hvd.RemoveProcessSet(set); err != nil {
		return err
	}
	if err := refused("that has been removed"); err != nil {
		return err
	}
	if err := hvd.AddProcessSet(hvd.NewProcessSet(0, n)); !errors.Is(err, hvd.ErrInvalidArgument) {
		return fmt.Errorf("a set with a rank that there is not: %w", err)
	}
	// A set does not outlive Shutdown, though its number may be in use again.
	if err := hvd.AddProcessSet(set); err != nil {
		return err
	}
	if err := hvd.Barrier(ctx); err != nil {
		return err
	}
	hvd.Shutdown()
	if err := hvd.Init(hvd.NewProcessSet(1, 2)); err != nil {
		return err
	}
	return refused("of an earlier Init")
}

// ended gives operations contexts that have ended.
func ended(ctx context.Context, r, n int) error {
	over, cancel := context.WithCancel(ctx)
	cancel()
	x := []float32{1}
	_, gathered := hvd.Allgather(over, "over", x)
	_, grouped := hvd.GroupedReducescatter(over, "over", [][]float32{x})
	_, joined := hvd.Join(over)
	_, received := hvd.Recv(over, r, 1, x)
	for i, err := range []error{
		hvd.Allreduce(over, "over", x), hvd.Barrier(over), gathered, grouped, joined,
		hvd.GroupedAllreduce(over, "over", [][]float32{x}), hvd.Send(over, r, 1, x), received,
	} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, hvd.ErrInternal) {
			return fmt.Errorf("call %d with a context that has ended: %w", i, err)
		}
	}
	// Nothing has been submitted: the name is free, and another shape is no mismatch.
	if err := hvd.Allreduce(ctx, "over", []float32{1, 2}); err != nil {
		return err
	}
	// An operation is executed even if the wait for it has ended early.
	h, err := hvd.AllgatherAsync("left", x)
	if err != nil {
		return err
	}
	if out, err := h.Wait(over); err == nil && len(out) == n {
		return nil // it was faster
	} else if !errors.Is(err, context.Canceled) {
		return fmt.Errorf("wait with a context that has ended: %w", err)
	}
	for !h.Done() {
		time.Sleep(time.Millisecond)
	}
	if out, err := h.Wait(ctx); err != nil || len(out) != n {
		return fmt.Errorf("what a wait has left behind: %v: %w", out, err)
	}
	return nil
}

// messages sends messages to this rank itself and to the next one.
func messages(ctx context.Context, r, n int) error {
	buf := make([]int32, 3)
	for _, bad := range []int{-1, n} {
		_, err := hvd.Recv(ctx, bad, 1, buf)
		if sent := hvd.Send(ctx, bad, 1, buf); !errors.Is(sent, hvd.ErrInvalidArgument) ||
			!errors.Is(err, hvd.ErrInvalidArgument) {
			return fmt.Errorf("rank %d: %w, %w", bad, sent, err)
		}
	}
	to, from := (r+1)%n, (r+n-1)%n
	if err := hvd.Send(ctx, to, 9, []int32{1, 2, 3}); err != nil {
		return err
	}
	if _, err := hvd.Recv(ctx, from, 9, buf[:2]); !errors.Is(err, hvd.ErrMessageTooLong) ||
		!errors.Is(err, hvd.ErrInvalidArgument) || errors.Is(err, hvd.ErrInternal) {
		return fmt.Errorf("a message that is too long: %w", err)
	}
	if k, err := hvd.Recv(ctx, from, 9, buf); err != nil || !slices.Equal(buf[:k], []int32{1, 2, 3}) {
		return fmt.Errorf("the same message again, %v: %w", buf[:k], err)
	}
	if err := hvd.Send(ctx, to, 9, []hvd.BFloat16{1}); err != nil {
		return err
	}
	if k, err := hvd.Recv(ctx, from, 9, buf); k != 0 || !errors.Is(err, hvd.ErrInvalidArgument) {
		return fmt.Errorf("half an element: %d, %w", k, err)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := hvd.Recv(short, from, 9, buf); !errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, hvd.ErrInternal) {
		return fmt.Errorf("no message: %w", err)
	}
	return nil
}

// traced records a timeline of one operation.
func traced(ctx context.Context, r, n int) error {
	path := filepath.Join(os.Getenv("HVD_TEST_DIR"), fmt.Sprint("timeline.", r))
	if err := hvd.StartTimeline(path, true); err != nil {
		return err
	}
	if err := hvd.Barrier(ctx); err != nil { // rank 0 has started
		return err
	}
	if err := hvd.Allreduce(ctx, "traced", []float32{1}); err != nil {
		return err
	}
	if err := hvd.StopTimeline(); err != nil {
		return err
	}
	if err := hvd.StopTimeline(); err != nil {
		return fmt.Errorf("stopped twice: %w", err)
	}
	content, err := os.ReadFile(path)
	if r != 0 {
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("rank %d has a timeline, too: %w", r, err)
		}
		return nil
	}
	if !json.Valid(content) || !strings.Contains(string(content), "traced") || !strings.Contains(string(content),
		"CYCLE_START") {
		return fmt.Errorf("the timeline: %w\n%s", err, content)
	}
	if err := hvd.StartTimeline(filepath.Join(path, "x"), false); err == nil {
		return errors.New("a timeline in a file as a folder")
	}
	return nil
}

// deadPeer lets the last rank leave while the first one waits for its message.
func deadPeer(ctx context.Context, r, n int) error {
	if n == 1 {
		return nil
	}
	if err := hvd.Barrier(ctx); err != nil {
		return err
	}
	switch r {
	case n - 1:
		hvd.Shutdown()
	case 0:
		buf := []int32{0}
		if _, err := hvd.Recv(ctx, n-1, 77, buf); !errors.Is(err, hvd.ErrInternal) {
			return fmt.Errorf("receive from a rank that has left: %w", err)
		}
	}
	return nil
}

package engine

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// liar is the network of a coordinator whose Responses are changed on their way into the log.
type liar struct {
	transport.Network
	change func(*negotiate.Response)
	rows   int64 // the rows that it announces in place of the true ones; 0: the truth
}

func (n *liar) OpenLane(id int, incarnation uint32, members []int) (*transport.Lane, error) {
	l, err := n.Network.OpenLane(id, incarnation, members)
	if err == nil && n.change != nil && l.Coordination != nil {
		l.Coordination = &liarsCoordination{l.Coordination, n.change}
	}
	if err == nil && n.rows != 0 {
		l.Comm = &liarsComm{l.Comm, n.rows}
	}
	return l, err
}

type liarsCoordination struct {
	transport.Coordination
	change func(*negotiate.Response)
}

func (c *liarsCoordination) Publish(responses ...[]byte) int {
	lies := make([][]byte, len(responses))
	for i, p := range responses {
		var r negotiate.Response
		if err := r.Decode(p); err != nil {
			panic(err)
		}
		c.change(&r)
		lies[i] = r.Append(nil)
	}
	return c.Coordination.Publish(lies...)
}

// A coordinator that announces other sizes than the members asked for ends the job. Nobody allocates, reads or writes
// by these sizes.
func TestAnnouncedSizesMustBeThoseAskedFor(t *testing.T) {
	const huge = 1 << 45
	for name, c := range map[string]struct {
		kind   operation.Kind
		change func(*negotiate.Response)
	}{
		"allreduce":     {operation.Allreduce, func(r *negotiate.Response) { r.Shape = tensor.Shape{huge} }},
		"other type":    {operation.Allreduce, func(r *negotiate.Response) { r.DType = tensor.Float64 }},
		"other kind":    {operation.Allreduce, func(r *negotiate.Response) { r.Type = operation.Broadcast }},
		"broadcast":     {operation.Broadcast, func(r *negotiate.Response) { r.Shape = tensor.Shape{huge} }},
		"reducescatter": {operation.Reducescatter, func(r *negotiate.Response) { r.Shape = tensor.Shape{huge} }},
		"alltoall":      {operation.Alltoall, func(r *negotiate.Response) { r.Shape = tensor.Shape{0, huge} }},
		"allgather": {operation.Allgather, func(r *negotiate.Response) {
			r.FirstDims, r.Shape = slices.Repeat([]int64{huge}, len(r.FirstDims)), tensor.Shape{2 * huge, 2}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			networks := inproc.NewWorld(2, inproc.Options{Shared: true, Cards: 4, ChunkBytes: 4096})
			networks[0] = &liar{Network: networks[0], change: c.change}
			engines := make([]*Engine, 2)
			for r, n := range networks {
				e, err := New(n, Options{Rank: r, Size: 2, FusionThreshold: 1 << 20, CacheCapacity: 4})
				if err != nil {
					t.Fatal(err)
				}
				engines[r] = e
			}
			each(engines, func(r int, e *Engine) {
				defer e.Shutdown(limit)
				data := floats(1, 2, 3, 4)
				op := sum("x", data)
				op.Type, op.Shape = c.kind, tensor.Shape{4}
				if c.kind == operation.Alltoall || c.kind == operation.Allgather {
					op.Shape = tensor.Shape{2, 2}
				}
				if c.kind != operation.Allreduce && c.kind != operation.Broadcast {
					op.Out = nil
					op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) {
						t.Errorf("rank %d is asked for %d bytes", r, n)
						return make([]byte, 64), nil
					}
				}
				if err := do(t, e, op); err == nil || !strings.Contains(err.Error(), "is to be executed as") {
					t.Errorf("rank %d: %v", r, err)
				}
			})
		})
	}
}

// A log that answers a call twice ends the job. The call ends once.
func TestAnsweredTwice(t *testing.T) {
	for e, err := range failed(t, func(l *transport.Lane) {
		if l.Coordination != nil {
			l.Coordination = &stutterer{l.Coordination}
		}
	}) {
		if err == nil || !strings.Contains(err.Error(), `"x" is answered twice`) {
			t.Errorf("rank %d: %v", e, err)
		}
	}
}

// failed runs an allreduce of two ranks whose lanes change changes, and returns its errors.
func failed(t *testing.T, change func(*transport.Lane)) (errs [2]*Error) {
	engines := make([]*Engine, 2)
	for r, n := range inproc.NewWorld(2, inproc.Options{Shared: true, Cards: 4, ChunkBytes: 4096}) {
		e, err := New(&changedNetwork{n, change}, Options{Rank: r, Size: 2, FusionThreshold: 1 << 20, CacheCapacity: 4})
		if err != nil {
			t.Fatal(err)
		}
		engines[r] = e
	}
	each(engines, func(r int, e *Engine) {
		defer e.Shutdown(limit)
		errs[r] = do(t, e, sum("x", floats(1, 2)))
	})
	return errs
}

type changedNetwork struct {
	transport.Network
	change func(*transport.Lane)
}

func (n *changedNetwork) OpenLane(id int, incarnation uint32, members []int) (*transport.Lane, error) {
	l, err := n.Network.OpenLane(id, incarnation, members)
	if err == nil {
		n.change(l)
	}
	return l, err
}

// stutterer publishes each Response twice.
type stutterer struct{ transport.Coordination }

func (s *stutterer) Publish(responses ...[]byte) int {
	return s.Coordination.Publish(slices.Concat(responses, responses)...) / 2
}

// A member that announces rows beyond all memory ends the job before anything is allocated.
func TestRowsOfPeersAreBounded(t *testing.T) {
	rows := func(n int64) func(*liar) { return func(l *liar) { l.rows = n } }
	for name, c := range map[string]struct {
		kind operation.Kind
		lie  func(*liar)
		want string
	}{
		"allgather": {operation.Allgather, func(l *liar) {
			l.change = func(r *negotiate.Response) { r.FirstDims[1], r.Shape[0] = 1<<45, 1<<45+r.FirstDims[0] }
		}, "bytes of memory"},
		"allgather of others": {operation.Allgather, func(l *liar) {
			l.change = func(r *negotiate.Response) { r.FirstDims = append(r.FirstDims, 0) }
		}, "has rows of 3"},
		"alltoall":             {operation.Alltoall, rows(1 << 40), "rows"},
		"alltoall of too much": {operation.Alltoall, rows(1<<31 - 1), "bytes of memory"},
		"alltoall of less":     {operation.Alltoall, rows(-7), "rows"},
	} {
		t.Run(name, func(t *testing.T) {
			networks := inproc.NewWorld(2, inproc.Options{Cards: 4, ChunkBytes: 4096})
			lying := 0 // the coordinator
			if c.kind == operation.Alltoall {
				lying = 1
			}
			lies := &liar{Network: networks[lying]}
			c.lie(lies)
			networks[lying] = lies
			engines := make([]*Engine, 2)
			for r, n := range networks {
				e, err := New(n, Options{Rank: r, Size: 2, FusionThreshold: 1 << 20, CacheCapacity: 4})
				if err != nil {
					t.Fatal(err)
				}
				engines[r] = e
			}
			each(engines, func(r int, e *Engine) {
				defer e.Shutdown(limit)
				// In an alltoall a row is large, and no rank has one.
				op := sum("x", floats(1, 2))
				op.Type, op.Shape, op.Out = c.kind, tensor.Shape{1, 2}, nil
				if c.kind == operation.Alltoall {
					op.In, op.Shape = nil, tensor.Shape{0, 1 << 20}
				}
				op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) {
					if n > 64 {
						t.Errorf("rank %d is asked for %d bytes", r, n)
					}
					return make([]byte, min(n, 64)), nil
				}
				err := do(t, e, op)
				if err == nil && r == lying && c.kind == operation.Alltoall {
					return // it is the liar
				}
				if err == nil || r == 0 && !strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(),
					"is to be executed as") {
					t.Errorf("rank %d: %v", r, err)
				}
			})
		})
	}
}

// liarsComm announces rows in place of each true number of rows.
type liarsComm struct {
	transport.Comm
	rows int64
}

func (c *liarsComm) Send(to int, p []byte) {
	if len(p) == 8 {
		p = binary.NativeEndian.AppendUint64(nil, uint64(c.rows))
	}
	c.Comm.Send(to, p)
}

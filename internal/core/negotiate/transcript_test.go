package negotiate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/test/transcript"
)

// TestTranscripts plays the scenarios in testdata, one file each. The commands:
//
//	lane ranks=(0,1) [capacity=2] [remote] [joinall] [threshold=]   makes a lane; remote: marks travel
//	submit m=0 name=a [type=] [dtype=] [op=] [shape=(2,3)] [root=] [device=] [pre=] [post=] [set=(0,1)]
//	submit m=0 name=a data=3 …  the same; if a has a card, its data travels with the mark
//	submit m=0 group=g names=(a,b) [but=b] …  submits a group; b has shape [9]
//	join m=1        member 1 joins
//	arrive m=1      member 1's first mark under way reaches the board
//	notice m=1      member 1 learns that one of its marks was stale
//	coordinate [m=1] [n=1]  the coordinator takes what is in the mailboxes (of
//	                member 1), at most n Requests of each
//	read [m=1]      all members (member 1) read the log to its end and execute
//	inject m=1 …    posts a Request that no correct member would post
//	pending         the names and members that the coordinator waits for
//	joined          the members that have joined
//	cards           the cards on the board, and the members that have marked them
//	end             nothing may be left over
//
// To accept the present output: go test ./internal/core/negotiate -run Transcripts -rewrite
func TestTranscripts(t *testing.T) {
	transcript.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		tr := &scenario{}
		transcript.Run(t, path, func(t *testing.T, d *transcript.Command) string {
			tr.out.Reset()
			tr.run(t, d)
			return tr.out.String()
		})
	})
}

type scenario struct {
	lane *modelLane
	out  strings.Builder
}

func (tr *scenario) printf(format string, args ...any) {
	fmt.Fprintf(&tr.out, format+"\n", args...)
}

func (tr *scenario) run(t *testing.T, d *transcript.Command) {
	one := -1
	d.MaybeScanArg(t, "m", &one)
	var chosen []int
	if tr.lane != nil {
		for m := range tr.lane.members {
			if one < 0 || m == one {
				chosen = append(chosen, m)
			}
		}
	}
	switch d.Cmd {
	case "lane":
		var ranks []int
		for _, arg := range d.Args {
			if arg.Key == "ranks" {
				for _, v := range arg.Vals {
					rank, _ := strconv.Atoi(v)
					ranks = append(ranks, rank)
				}
			}
		}
		capacity := 2
		d.MaybeScanArg(t, "capacity", &capacity)
		threshold := 64
		d.MaybeScanArg(t, "threshold", &threshold)
		tr.lane = newModelLane(ranks, d.HasArg("remote"),
			Options{Capacity: capacity, JoinAllOps: d.HasArg("joinall"), FusionThreshold: int64(threshold)})
	case "submit":
		var data *int
		if n := 0; d.MaybeScanArg(t, "data", &n) {
			data = &n
		}
		for _, m := range chosen {
			tr.printf("%d: %s", m, tr.lane.submit(m, data, requests(t, d)...))
		}
	case "join":
		for _, m := range chosen {
			tr.printf("%d: %s", m, tr.lane.submitJoin(m))
		}
	case "joined":
		tr.printf("%v", tr.lane.coord.Joined())
	case "inject":
		for _, r := range requests(t, d) {
			tr.lane.board.Post(one, r.Append(nil))
		}
	case "arrive":
		tr.lane.board.arrive(one)
	case "notice":
		tr.printf("%d: %s", one, tr.lane.notice(one))
	case "coordinate":
		n := math.MaxInt
		d.MaybeScanArg(t, "n", &n)
		tr.coordinate(chosen, n)
	case "read":
		for _, m := range chosen {
			tr.read(m)
		}
	case "pending":
		tr.lane.coord.Pending(func(name string, typ operation.Kind, present, missing []int) {
			tr.printf("%v %s: in %v, missing %v", typ, name, present, missing)
		})
	case "cards":
		for i, s := range tr.lane.board.cards {
			if resp := tr.lane.coord.byCard[uint32(i)]; resp != nil {
				tr.printf("card %d gen %d: %s, marked by %v", i, s.gen, resp.Name, tr.lane.board.Marked(uint32(i)))
			}
		}
	case "end":
		if left := tr.lane.leftover(); left != "" {
			t.Errorf("%s: left over: %s", d.Pos, left)
		}
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
}

func (tr *scenario) coordinate(chosen []int, most int) {
	for _, m := range chosen {
		for n := 0; n < most && tr.lane.board.canTake(m); n++ {
			resps, err := tr.lane.coordinate(m)
			if err != nil {
				tr.printf("abort: %v", err)
				return
			}
			for _, resp := range resps {
				tr.lane.publish()
				tr.printf("publish %s", show(resp))
			}
		}
	}
}

func (tr *scenario) read(m int) {
	mem := tr.lane.members[m]
	for tr.lane.board.readable(m, mem.read) {
		rec := tr.lane.board.log[mem.read]
		resp, err := tr.lane.next(m)
		switch {
		case err != nil:
			tr.printf("%d: error: %v", m, err)
		case resp.Err != "":
			tr.printf("%d: %s fails", m, resp.Name)
		case slices.Contains(resp.Joined, int32(m)):
			tr.printf("%d: %v %s, without an input", m, resp.Type, resp.Name)
		case rec.result != nil:
			tr.printf("%d: %v %s, by card %d, result %d", m, resp.Type, resp.Name, rec.card, *rec.result)
		case rec.response == nil:
			tr.printf("%d: %v %s, by card %d", m, resp.Type, resp.Name, rec.card)
		default:
			tr.printf("%d: %v %s", m, resp.Type, resp.Name)
		}
	}
}

func show(r *Response) string {
	s := fmt.Sprintf("%v %s", r.Type, r.Name)
	if r.Err != "" {
		return s + ": " + r.Err
	}
	switch r.Type {
	case operation.Join:
		return s + fmt.Sprintf(", rank %d was the last", r.Root)
	case operation.Settle:
		return s + fmt.Sprintf(" for rank %d", r.Root)
	case operation.AddProcessSet, operation.RemoveProcessSet:
		return s + fmt.Sprintf(" id %d", r.Root)
	}
	s += fmt.Sprintf(" %v %v", r.DType, r.Shape)
	switch r.Type {
	case operation.Allreduce, operation.Adasum, operation.Reducescatter:
		s += fmt.Sprintf(" %v factors (%v, %v)", r.ReduceOp, r.Prescale, r.Postscale)
		if r.Wire != tensor.WireAsIs {
			s += fmt.Sprintf(" as %v", r.Wire)
		}
	case operation.Broadcast, operation.Scatter:
		s += fmt.Sprintf(" from %d", r.Root)
	case operation.Gather:
		s += fmt.Sprintf(" to %d", r.Root)
	case operation.Reduce:
		s += fmt.Sprintf(" %v factors (%v, %v) to %d", r.ReduceOp, r.Prescale, r.Postscale, r.Root)
	case operation.Allgather:
		s += fmt.Sprintf(" first %v", r.FirstDims)
	}
	if r.Alone {
		s += " alone"
	}
	if r.Group != "" {
		s += fmt.Sprintf(" of group %s (%d)", r.Group, r.GroupSize)
	}
	if len(r.Joined) > 0 {
		s += fmt.Sprintf(" without %v", r.Joined)
	}
	if r.Card != NoCard {
		s += fmt.Sprintf(" -> card %d gen %d", r.Card, r.Gen)
	}
	return s
}

// requests reads a Request from a command line, or the Requests of a group.
func requests(t *testing.T, d *transcript.Command) []*Request {
	var reqs []*Request
	for _, arg := range d.Args {
		if arg.Key == "names" {
			for _, name := range arg.Vals {
				r := request(t, d)
				r.Name, r.GroupSize = name, int32(len(arg.Vals))
				var but string
				if d.MaybeScanArg(t, "but", &but); but == name {
					r.Shape = tensor.Shape{9}
				}
				if r.Refused != name {
					r.Refused = ""
				}
				reqs = append(reqs, r)
			}
			return reqs
		}
	}
	return append(reqs, request(t, d))
}

func request(t *testing.T, d *transcript.Command) *Request {
	r := &Request{DType: tensor.Float32, ReduceOp: tensor.Sum, Device: CPUDevice, Prescale: 1, Postscale: 1}
	r.Shape = tensor.Shape{4}
	for _, arg := range d.Args {
		var v string
		if len(arg.Vals) > 0 {
			v = arg.Vals[0]
		}
		integer := func() int64 {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				d.Fatalf(t, "%s: %v", arg.Key, err)
			}
			return n
		}
		float := func() float64 {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				d.Fatalf(t, "%s: %v", arg.Key, err)
			}
			return f
		}
		switch arg.Key {
		case "m", "names", "but", "from", "contested", "data":
		case "group":
			r.Group = v
		case "set":
			for _, v = range arg.Vals {
				if v == "" {
					continue
				}
				r.Ranks = append(r.Ranks, int32(integer()))
			}
		case "name":
			r.Name = v
		case "type":
			// A barrier with a name is a barrier to users: only the prefix of its name tells it apart.
			for r.Type.String() != strings.ToUpper(v) && r.Type.Describe().Alike != v {
				if r.Type++; r.Type == 0 {
					d.Fatalf(t, "unknown type %s", v)
				}
			}
		case "dtype":
			for !r.DType.Valid() || r.DType.String() != v {
				r.DType = (r.DType + 1) % tensor.NumDTypes
			}
		case "op":
			for r.ReduceOp.String() != v {
				r.ReduceOp = (r.ReduceOp + 1) % tensor.NumReduceOps
			}
		case "refused":
			r.Refused = v
		case "alone":
			r.Alone = true
		case "wire":
			w, err := tensor.ParseWire(v)
			if err != nil {
				d.Fatalf(t, "%s: %v", arg.Key, err)
			}
			r.Wire = w
		case "shape":
			r.Shape = nil
			for _, v = range arg.Vals {
				if v != "" {
					r.Shape = append(r.Shape, integer())
				}
			}
		case "root":
			r.Root = int32(integer())
		case "device":
			r.Device = int32(integer())
		case "pre":
			r.Prescale = float()
		case "post":
			r.Postscale = float()
		default:
			d.Fatalf(t, "unknown argument %s", arg.Key)
		}
	}
	return r
}

package treeboard

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/test/transcript"
)

// TestTranscripts plays the scenarios in testdata/transcripts, one file each. The commands:
//
//	lane hosts=((0,2),(1)) [cards=]   makes a lane of these hosts
//	acquire                           the coordinator takes a card
//	retire card=                      it ends the card's generation
//	bound m= bytes=                   how much data of member m may be under way
//	mark m= [card=] [gen=] [data=(1,2)]  member m marks the card; its data, some float32, are to be added up
//	post m= text=                     member m posts a Request
//	turn m=                           the driver of member m gives its board a turn
//	deliver from= to=                 the frames under way between two members arrive
//	read [m=]                         all members (member m) read the log to its end
//	close m=                          member m closes the log
//
// Each prints the frames that it lets members send, and the members that it wakes. To accept the present output:
// go test ./internal/core/transport/treeboard -run Transcripts -rewrite
func TestTranscripts(t *testing.T) {
	transcript.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		p := &play{}
		transcript.Run(t, path, func(t *testing.T, d *transcript.Command) string {
			p.out.Reset()
			p.run(t, d)
			return p.out.String()
		})
	})
}

type play struct {
	link *link
	out  strings.Builder
}

func (p *play) printf(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

func (p *play) run(t *testing.T, d *transcript.Command) {
	if d.Cmd == "lane" {
		p.lane(t, d)
		return
	}
	before := append([]int(nil), p.link.rings...)
	number := func(key string, n int) int {
		d.MaybeScanArg(t, key, &n)
		return n
	}
	one := number("m", -1)
	switch d.Cmd {
	case "acquire":
		card, gen := acquire(t, p.link)
		p.printf("card %d gen %d", card, gen)
	case "retire":
		marked, ok := p.link.boards[0].Coordination().Retire(uint32(number("card", 0)))
		p.printf("marked by %v, %v", marked, ok)
	case "bound":
		p.link.boards[one].BoundEarly(number("bytes", 0))
	case "mark":
		card, gen := uint32(number("card", 0)), uint32(number("gen", 1))
		mark := p.link.boards[one].Mark
		if data := floatsOf(t, d); data != nil {
			mark = func(card, gen uint32) bool { return p.link.boards[one].MarkWith(card, gen, sumOf(data...)) }
		}
		if !mark(card, gen) {
			p.printf("refused")
		}
	case "post":
		var text string
		d.MaybeScanArg(t, "text", &text)
		p.link.boards[one].Post([]byte(text))
	case "turn":
		b := p.link.boards[one].Poller()
		b.Poll()
		b.Cut()
	case "deliver":
		p.link.deliver(number("from", 0), number("to", 0), 1<<30)
	case "read":
		for m := range p.link.boards {
			if one < 0 || m == one {
				p.read(m)
			}
		}
	case "close":
		p.link.boards[one].Close()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	for m, n := range p.link.rings {
		if n > before[m] {
			p.printf("wakes %d", m)
		}
	}
}

func (p *play) lane(t *testing.T, d *transcript.Command) {
	var hosts [][]int
	for _, arg := range d.Args {
		if arg.Key != "hosts" {
			continue
		}
		for _, host := range arg.Vals {
			var members []int
			for _, m := range strings.Split(strings.Trim(host, "()"), ",") {
				n, err := strconv.Atoi(m)
				if err != nil {
					d.Fatalf(t, "host %s: %v", host, err)
				}
				members = append(members, n)
			}
			hosts = append(hosts, members)
		}
	}
	cards := 4
	d.MaybeScanArg(t, "cards", &cards)
	p.link = newLink(t, hosts, cards, nil)
	p.link.abort = func(m int, err error) { p.printf("%d aborts: %v", m, err) }
	p.link.sendsTo = func(from, to int, frame []byte) { p.printf("%d -> %d: %s", from, to, p.describe(from, frame)) }
}

func (p *play) read(m int) {
	b := p.link.boards[m]
	for r := b.Next(); r != nil; r = b.Next() {
		for i := range r {
			p.printf("%d reads %s", m, recordText(&r[i]))
		}
	}
	b.TakeStale(func(card, gen uint32) { p.printf("%d: the mark of card %d gen %d was stale", m, card, gen) })
	if b.Closed() {
		p.printf("%d: closed by %d", m, b.ClosedBy())
	}
}

// describe is a frame in words.
func (p *play) describe(from int, frame []byte) string {
	k, body := kind(frame[0]), frame[1:]
	text := k.String()
	switch k {
	case kindMark:
		for ; len(body) > 0; body = body[markBytes:] {
			text += fmt.Sprintf(" of card %d gen %d, last by %d", number(body)&^together, number(body[4:]),
				binary.LittleEndian.Uint16(body[8:]))
		}
	case kindOperands:
		for len(body) > 0 {
			n := int(number(body[12:]))
			text += fmt.Sprintf(" of card %d gen %d, last by %d:", number(body), number(body[4:]),
				binary.LittleEndian.Uint16(body[8:]))
			body = body[operandsHead:]
			for range 1 + len(p.below(from)) {
				text += " " + numbersText(body[:n])
				body = body[n:]
			}
		}
	case kindBatch:
		records, err := cutBatch(nil, body, 1<<10)
		if err != nil {
			return err.Error()
		}
		for i := range records {
			text += " " + recordText(&records[i])
		}
	case kindRequest:
		_, request, _, _ := cutRequest(body, nil)
		text += fmt.Sprintf(" %q", request)
	case kindClose, kindClosed:
		text += fmt.Sprintf(" by %d", number(body))
	case kindCredit:
		text += fmt.Sprintf(" for %d bytes", number(body))
	}
	return text
}

// below lists the hosts below the one that a member leads.
func (p *play) below(leader int) []int {
	tree, err := newTree(p.link.hosts, leader)
	if err != nil {
		p.link.t.Fatal(err)
	}
	var all []int
	for i := range tree.children {
		all = append(all, tree.children[i].hosts...)
	}
	return all
}

func recordText(r *transport.Record) string {
	switch r.Kind {
	case transport.RecordCard:
		return fmt.Sprintf("card %d", r.Card)
	case transport.RecordResult:
		return fmt.Sprintf("card %d with %s", r.Card, numbersText(r.Payload))
	case transport.RecordRetired:
		return fmt.Sprintf("end of card %d gen %d", r.Card, r.Gen)
	}
	return fmt.Sprintf("response %q", r.Payload)
}

func numbersText(p []byte) string {
	var all []string
	for ; len(p) > 0; p = p[4:] {
		all = append(all, fmt.Sprint(math.Float32frombits(binary.NativeEndian.Uint32(p))))
	}
	return "(" + strings.Join(all, ",") + ")"
}

// floatsOf are the numbers of the argument data, nil without it.
func floatsOf(t *testing.T, d *transcript.Command) (all []float32) {
	for _, arg := range d.Args {
		if arg.Key != "data" {
			continue
		}
		for _, v := range arg.Vals {
			x, err := strconv.ParseFloat(v, 32)
			if err != nil {
				d.Fatalf(t, "data: %v", err)
			}
			all = append(all, float32(x))
		}
	}
	return all
}

package negotiate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/test/transcript"
)

// TestCombiner plays the scenarios in testdata/combiner. The commands:
//
//	combiner members=(2,3,5)    makes one
//	take from=(2) name=a [type=] [shape=] …   as submit of TestTranscripts; [contested]
//	open                        the names that have open rounds
//
// The Requests that go on are printed as members, type, name and shape.
func TestCombiner(t *testing.T) {
	transcript.Walk(t, "testdata/combiner", func(t *testing.T, path string) {
		var c *Combiner
		transcript.Run(t, path, func(t *testing.T, d *transcript.Command) string {
			var out strings.Builder
			members := func(key string) (ms []int) {
				for _, arg := range d.Args {
					for _, v := range arg.Vals {
						var m int
						if arg.Key == key {
							fmt.Sscan(v, &m)
							ms = append(ms, m)
						}
					}
				}
				return ms
			}
			switch d.Cmd {
			case "combiner":
				c = NewCombiner(members("members"))
			case "take":
				from := members("from")
				for _, r := range requests(t, d) {
					r.Contested = d.HasArg("contested")
					p := r.Append(nil)
					err := c.Take(from, p, func(from []int, p []byte) {
						var r Request
						if err := r.Decode(p); err != nil {
							t.Fatal(err)
						}
						fmt.Fprintf(&out, "%v %v %s %v\n", from, r.Type, r.Name, r.Shape)
					})
					if err != nil {
						fmt.Fprintf(&out, "error: %v\n", err)
					}
					clear(p) // the Combiner may not keep it
					clear(from)
				}
			case "open":
				for name, a := range c.open {
					fmt.Fprintf(&out, "%s: %d of %d\n", name, a.n, len(c.members))
				}
			default:
				t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			}
			if out.Len() == 0 {
				return "nothing\n"
			}
			return out.String()
		})
	})
}

package shape

import "testing"

type inner struct{ A int }

type tree struct {
	Name string
	Next *tree
	Sub  []inner
}

// Each of these differs from the others in something that matters to the other end.
func TestDigestsTellTypesApart(t *testing.T) {
	seen := map[string]int{}
	for i, v := range []any{
		1, 2,
		struct{ A int }{},
		struct{ A int64 }{},
		struct{ B int }{},
		struct {
			A int `json:"a"`
		}{},
		struct{ A, B int }{},
		struct{ A []int }{},
		struct{ A [2]int }{},
		struct{ A [3]int }{},
		struct{ A map[string]int }{},
		struct{ A map[string]bool }{},
		struct{ A *struct{ B int } }{},
		struct{ A *struct{ B string } }{},
		tree{},
	} {
		d := Digest(v)
		if j, ok := seen[d]; ok || len(d) != 8 {
			t.Errorf("cases %d and %d have the digest %s", j, i, d)
		}
		seen[d] = i
	}
}

func TestNamesOfTypesDoNotCount(t *testing.T) {
	if a, b := Digest(inner{}, 3), Digest(struct{ A int }{}, 3); a != b {
		t.Errorf("%s and %s", a, b)
	}
	if a, b := Digest(inner{}), Digest(struct {
		A int
		b string
	}{}); a != b {
		t.Errorf("%s and %s, but nobody sees b", a, b)
	}
}

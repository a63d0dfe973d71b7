package property

import (
	"slices"
	"strings"
	"testing"
)

// TestTheSmallestCaseIsFound runs properties whose smallest failing case is known.
func TestTheSmallestCaseIsFound(t *testing.T) {
	for _, c := range []struct {
		name     string
		property func(*T)
		want     []string
	}{
		{"a number in a list is large", func(t *T) {
			if slices.Max(append(List(t, "list", 0, 50, func(t *T) int { return t.Int("element", 0, 1000) }),
				0)) >= 500 {
				t.Fatalf("large")
			}
		}, []string{"draw length of list: 1", "draw element: 500", "wrong: large"}},
		{"a list is not sorted", func(t *T) {
			if !slices.IsSorted(List(t, "list", 0, 50, func(t *T) int { return t.Int("element", -5, 5) })) {
				t.Errorf("not sorted")
			}
		}, []string{"draw length of list: 2", "draw element: -4", "draw element: -5", "wrong: not sorted"}},
		{"two conditions hold together", func(t *T) {
			if s := Pick(t, "word", []string{"a", "b", "c"}); t.Bool("switch") && s > "a" {
				t.Fatal("both", "hold")
			}
		}, []string{`draw word: "b"`, "draw switch: true", "wrong: both hold"}},
		{"a fraction is large", func(t *T) {
			if t.Float("fraction", 0, 64) > 31 {
				t.Fatal("large")
			}
		}, []string{"draw fraction: 31.000000000000007", "wrong: large"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(1000) {
				report := check(c.property, seed)
				if report == "" {
					continue
				}
				_, lines, _ := strings.Cut(report, "\n")
				if got := strings.Split(lines, "\n"); !slices.Equal(got, c.want) {
					t.Errorf("seed %d:\n%s\nwant\n%s", seed, lines, strings.Join(c.want, "\n"))
				}
				if seed > 100 {
					return
				}
			}
		})
	}
}

func TestAPanicIsAFailure(t *testing.T) {
	report := check(func(t *T) {
		if t.Int("i", 0, 9) > 2 {
			panic("more than two")
		}
	}, 3)
	for _, want := range []string{"-property.seed=3 ", "draw i: 3\n", "wrong: panic: more than two\n",
		"property_test.go"} {
		if !strings.Contains(report, want) {
			t.Errorf("%q is not in:\n%s", want, report)
		}
	}
}

func TestAFailureThatDoesNotComeAgain(t *testing.T) {
	runs := 0
	report := check(func(t *T) {
		t.Int("i", 0, 9)
		if runs++; runs == 1 {
			t.Errorf("once")
		}
	}, 1)
	if !strings.HasPrefix(report, "a case fails, but not each time (-property.seed=1 ") || !strings.Contains(report,
		"wrong: once") {
		t.Error(report)
	}
}

// TestDrawsReachTheirBorders checks that both ends of a range are drawn, and no value outside it.
func TestDrawsReachTheirBorders(t *testing.T) {
	seen := map[int]int{}
	Check(t, func(t *T) {
		for range 100 {
			i := t.Int("i", -3, 3)
			if f := t.Float("f", 1, 2); i < -3 || i > 3 || f < 1 || f > 2 {
				t.Fatalf("%d and %v", i, f)
			}
			seen[i]++
			if whole := t.Int("any", -1<<63, 1<<63-1); whole == -1<<63 {
				seen[4]++
			} else if whole == 1<<63-1 {
				seen[5]++
			}
		}
	})
	for i := -3; i <= 5; i++ {
		if seen[i] == 0 {
			t.Errorf("%d never: %v", i, seen)
		}
	}
}

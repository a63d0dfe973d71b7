package vitals

import (
	"slices"
	"testing"
)

func TestBothEndsOfAStackAreTold(t *testing.T) {
	for n, want := range map[int][]int{0: {}, 1: {0}, 7: {6, 5, 4, 3, 2, 1, 0}, 8: {7, 6, 5, 3, 2, 1, 0},
		50: {49, 48, 47, 3, 2, 1, 0}} {
		inward := make([]int, n)
		for i := range inward {
			inward[i] = i
		}
		if got := told(inward); !slices.Equal(got, want) {
			t.Errorf("of %d: %v, not %v", n, got, want)
		}
	}
}

package engine

import (
	"encoding/binary"
	"slices"
	"testing"
)

// Settings come from the log, which another rank has written. decodeSettings refuses them, or encode returns them
// unchanged.
func FuzzSettings(f *testing.F) {
	s := (&Options{FusionThreshold: 1 << 20}).settings()
	var seed []byte
	for _, n := range s.encode() {
		seed = binary.LittleEndian.AppendUint64(seed, uint64(n))
	}
	f.Add(seed)
	f.Add(seed[8:])
	f.Add(make([]byte, len(seed)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v []int64
		for ; len(data) >= 8; data = data[8:] {
			v = append(v, int64(binary.LittleEndian.Uint64(data)))
		}
		s, err := decodeSettings(v)
		if err != nil {
			return
		}
		v[6] = min(v[6], 1) // a flag
		if again := s.encode(); !slices.Equal(again, v) {
			t.Errorf("%v becomes %v", v, again)
		}
	})
}

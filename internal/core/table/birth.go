package table

import "math/bits"

// birth makes the numbers of new rows. They depend on the table's seed and name, on the key, and on nothing else: not
// on the number of ranks, on when the row is born, or on the machine. For that the generator has no state but a
// counter, and it makes a normal variable by integers and a table. The last step is one product in float32.
type birth struct {
	init  Init
	base  uint64 // of seed and name
	scale float32
}

// increment is 2⁶⁴ divided by the golden ratio, as in SplitMix64.
const increment = 0x9e3779b97f4a7c15

func newBirth(o *Options) birth {
	base := mix(o.Seed + increment)
	for _, c := range []byte(o.Name) {
		base = mix(base ^ uint64(c) + increment)
	}
	b := birth{init: o.Init, base: base}
	switch o.Init {
	case Normal:
		b.scale = o.Scale * (1.0 / (1 << 24)) // quantiles are times 1 << 24; the product is exact
	case Uniform:
		b.scale = o.Scale * (1.0 / (1 << 31))
	}
	return b
}

// mix is the output function of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill writes the weights of a key's new row.
func (b *birth) fill(key int64, w []float32) {
	if b.init == Zeros {
		clear(w)
		return
	}
	counter := mix(b.base ^ mix(uint64(key)+increment))
	for i := 0; i < len(w); i += 2 { // a number has bits for two weights
		counter += increment
		x := mix(counter)
		w[i] = b.weight(uint32(x))
		if i+1 < len(w) {
			w[i+1] = b.weight(uint32(x >> 32))
		}
	}
}

func (b *birth) weight(x uint32) float32 {
	if b.init == Uniform {
		return float32(int32(x)) * b.scale
	}
	z := float32(quantile(x&(1<<31-1))) * b.scale
	if x>>31 != 0 {
		return -z
	}
	return z
}

// quantile is the absolute value, times 1 << 24, that a normal variable exceeds with the probability m / 1 << 31:
// between two of quantiles it is linear.
func quantile(m uint32) int32 {
	octave := min(bits.LeadingZeros32(m)-1, octaves-1) // m has 31 bits
	width := 24 - octave                               // in bits, of a step; the last octave goes down to 0
	step := int(m >> width)
	if octave == octaves-1 {
		width = 25 - octave
		step = int(m >> width)
	} else {
		step -= 64 // the highest bit of m
	}
	at := (octaves-1-octave)*64 + step
	rest := int64(m & (1<<width - 1))
	a, b := int64(quantiles[at]), int64(quantiles[at+1])
	return int32(a - (a-b)*rest>>width)
}

package reach

import "net/netip"

// MaxRails bounds how many interfaces count.
const MaxRails = 8

// Rails is over how many of this host's interfaces it pays to spread the data to another
// host: those as fast as the fastest, each in a subnet of its own, since the kernel
// sends to one subnet through one interface. A slow one beside a fast one, such as that of
// the administrators' network, would hold up its share. Where drivers do not tell
// their speed, only interfaces that the user has chosen count as equal. At least 1.
func Rails(own []Own, chosen bool) int {
	best := 0
	for _, o := range own {
		if !o.Bridge {
			best = max(best, o.Speed)
		}
	}
	if best == 0 && !chosen {
		return 1
	}
	interfaces, subnets := make(map[string]bool), make(map[netip.Prefix]bool)
	for _, o := range own {
		if subnet := o.Prefix.Masked(); !o.Bridge && o.Speed == best && !interfaces[o.Interface] && !subnets[subnet] {
			interfaces[o.Interface], subnets[subnet] = true, true
		}
	}
	return min(max(1, len(subnets)), MaxRails)
}

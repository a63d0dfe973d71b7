package reach

import "net/netip"

// MaxRails is how many interfaces count at most.
const MaxRails = 8

// Rails is over how many of this host's interfaces data to another host should be spread, at least 1. It counts the
// interfaces that are as fast as the fastest, each in a subnet of its own, because the kernel sends to one subnet
// through one interface. A slow one beside a fast one, such as one to the administrators' network, would delay its
// share. If drivers do not tell the speed, only interfaces that the user has chosen count as equal.
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

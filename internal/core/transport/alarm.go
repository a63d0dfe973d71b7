package transport

// Alarm is a Bell that rings through a descriptor, so that its driver can sleep on other descriptors, such as sockets,
// at the same time. In place of Sleep such a driver waits until FD or one of the others is ready, and then calls Rung:
//
//	for !a.Rung(ticket) && nothing else is ready {
//		poll(a.FD(), others)
//		a.Clear()
//	}
//	a.Disarm()
//
// All methods belong to the driver, except Ring.
type Alarm interface {
	Bell
	// Rung reports that there has been a ring later than Arm's ticket.
	Rung(ticket uint32) bool
	// FD is readable from a ring of an armed bell until Clear, and sometimes for no
	// reason. It is -1 once the network is closed.
	FD() int
	// Clear makes FD wait for the next ring.
	Clear()
}

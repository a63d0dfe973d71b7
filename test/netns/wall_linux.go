package netns

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Wall acts as a firewall that lets TCP connections in, but not out. It drops packets that would begin a
// connection from this host to another; packets of other connections pass. It talks to the kernel's nf_tables
// itself, because nft may not be installed. If the kernel has no nf_tables, it skips the test.
func (h Host) Wall(t testing.TB) {
	t.Helper()
	if err := h.wall(); err != nil {
		t.Skipf("a firewall needs the kernel's nf_tables (modprobe nf_tables): %v", err)
	}
}

func (h Host) wall() error {
	fd, err := h.socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const acknowledged = unix.NLM_F_REQUEST | unix.NLM_F_ACK | unix.NLM_F_CREATE
	name := text(1, "wall")
	// tcp flags & (syn | ack) == syn drop, but on loopback.
	rule := join(name, text(2, "out"), nested(4,
		expression("meta", number(1, 1), number(2, unix.NFT_META_OIFTYPE)),
		expression("cmp", number(1, 1), number(2, unix.NFT_CMP_NEQ),
			value(3, binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_LOOPBACK))),
		expression("meta", number(1, 1), number(2, unix.NFT_META_L4PROTO)),
		expression("cmp", number(1, 1), number(2, unix.NFT_CMP_EQ), value(3, []byte{unix.IPPROTO_TCP})),
		expression("payload", number(1, 1), number(2, unix.NFT_PAYLOAD_TRANSPORT_HEADER), number(3, 13), number(4, 1)),
		expression("bitwise", number(1, 1), number(2, 1), number(3, 1), value(4, []byte{0x12}), value(5, []byte{0})),
		expression("cmp", number(1, 1), number(2, unix.NFT_CMP_EQ), value(3, []byte{0x02})),
		// NF_DROP
		expression("immediate", number(1, unix.NFT_REG_VERDICT),
			nested(2, nested(unix.NFTA_DATA_VERDICT, number(1, 0)))),
	))
	chain := join(name, text(3, "out"), nested(4, number(1, unix.NF_INET_LOCAL_OUT), number(2, 0)), text(7, "filter"))
	batch := join(
		message(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, acknowledged, unix.NFPROTO_INET, 0, name),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWCHAIN, acknowledged, unix.NFPROTO_INET, 0, chain),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE, acknowledged|unix.NLM_F_APPEND,
			unix.NFPROTO_INET, 0, rule),
		message(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil),
	)
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	buf := make([]byte, 8192)
	for left := 3; left > 0; {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		for p := buf[:n]; len(p) >= unix.NLMSG_HDRLEN+4; left-- {
			size := int(binary.NativeEndian.Uint32(p))
			if errno := -int32(binary.NativeEndian.Uint32(p[unix.NLMSG_HDRLEN:])); errno != 0 {
				return unix.Errno(errno)
			}
			p = p[min(len(p), (size+3)&^3):]
		}
	}
	return nil
}

// socket makes a socket in the host's namespace.
func (h Host) socket(family, kind, protocol int) (fd int, err error) {
	if there := h.Inside(func() { fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol) }); there != nil {
		return -1, there
	}
	return fd, err
}

// message is a message of netlink: its header, nfnetlink's header, and attributes.
func message(kind, flags int, family byte, resource uint16, attributes []byte) []byte {
	size := unix.NLMSG_HDRLEN + 4 + len(attributes)
	p := binary.NativeEndian.AppendUint32(nil, uint32(size))
	p = binary.NativeEndian.AppendUint16(p, uint16(kind))
	p = binary.NativeEndian.AppendUint16(p, uint16(flags))
	p = append(p, make([]byte, 8)...) // sequence and port
	p = binary.BigEndian.AppendUint16(append(p, family, 0), resource)
	return append(p, attributes...)
}

func attribute(kind int, p []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(p)))
	b = append(binary.NativeEndian.AppendUint16(b, uint16(kind)), p...)
	return append(b, make([]byte, -len(b)&3)...)
}

func number(kind, n int) []byte {
	return attribute(kind, binary.BigEndian.AppendUint32(nil, uint32(n)))
}
func text(kind int, s string) []byte { return attribute(kind, append([]byte(s), 0)) }
func nested(kind int, parts ...[]byte) []byte {
	return attribute(kind|unix.NLA_F_NESTED, join(parts...))
}

// value is an attribute with immediate data of an expression.
func value(kind int, p []byte) []byte { return nested(kind, attribute(unix.NFTA_DATA_VALUE, p)) }

// expression is an expression of a rule.
func expression(name string, attributes ...[]byte) []byte {
	return nested(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nested(unix.NFTA_EXPR_DATA, attributes...))
}

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

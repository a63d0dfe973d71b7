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
	// tcp flags & (syn | ack) == syn drop, but on loopback.
	err := h.filter("wall", unix.NF_INET_LOCAL_OUT,
		expression("meta", number(1, 1), number(2, unix.NFT_META_OIFTYPE)),
		expression("cmp", number(1, 1), number(2, unix.NFT_CMP_NEQ),
			value(3, binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_LOOPBACK))),
		expression("meta", number(1, 1), number(2, unix.NFT_META_L4PROTO)),
		expression("cmp", number(1, 1), number(2, unix.NFT_CMP_EQ), value(3, []byte{unix.IPPROTO_TCP})),
		expression("payload", number(1, 1), number(2, unix.NFT_PAYLOAD_TRANSPORT_HEADER), number(3, 13), number(4, 1)),
		expression("bitwise", number(1, 1), number(2, 1), number(3, 1), value(4, []byte{0x12}), value(5, []byte{0})),
		expression("cmp", number(1, 1), number(2, unix.NFT_CMP_EQ), value(3, []byte{0x02})),
		drop)
	if err != nil {
		t.Skipf("a firewall needs the kernel's nf_tables (modprobe nf_tables): %v", err)
	}
}

// Forgetful acts as a firewall that forgets a TCP connection over which nothing has passed for so many seconds, except
// an ssh to this host. From then on it drops the connection's packets, and neither end gets an error. If the kernel
// cannot do that, it skips the test.
func (h Host) Forgetful(t testing.TB, seconds int) {
	t.Helper()
	// tcp dport != 22 ct state invalid drop on the way in, tcp sport != 22 on the way out.
	for _, way := range []struct {
		name       string
		hook, port int // where in TCP's header this host's port is
	}{{"in", unix.NF_INET_LOCAL_IN, 2}, {"out", unix.NF_INET_LOCAL_OUT, 0}} {
		err := h.filter(way.name, way.hook,
			expression("meta", number(1, 1), number(2, unix.NFT_META_L4PROTO)),
			expression("cmp", number(1, 1), number(2, unix.NFT_CMP_EQ), value(3, []byte{unix.IPPROTO_TCP})),
			expression("payload", number(1, 1), number(2, unix.NFT_PAYLOAD_TRANSPORT_HEADER), number(3, way.port),
				number(4, 2)),
			expression("cmp", number(1, 1), number(2, unix.NFT_CMP_NEQ), value(3, []byte{0, 22})),
			expression("ct", number(1, 1), number(2, unix.NFT_CT_STATE)),
			expression("bitwise", number(1, 1), number(2, 1), number(3, 4),
				value(4, binary.NativeEndian.AppendUint32(nil, ctInvalid)), value(5, make([]byte, 4))),
			expression("cmp", number(1, 1), number(2, unix.NFT_CMP_NEQ), value(3, make([]byte, 4))),
			drop)
		if err != nil {
			t.Skipf("a firewall that knows connections needs the kernel's nf_tables and nf_conntrack: %v", err)
		}
	}
	// A packet in the middle of a connection does not make the firewall remember it.
	for name, n := range map[string]int{"loose": 0, "timeout_established": seconds, "timeout_unacknowledged": seconds,
		"timeout_max_retrans": seconds} {
		file := "/proc/sys/net/netfilter/nf_conntrack_tcp_" + name
		write := h.Command(t.Context(), "sh", "-c", fmt.Sprintf("echo %d >%s", n, file))
		if out, err := write.CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", file, err, out)
		}
	}
}

// ctInvalid is the state of a packet of no connection that the firewall knows (NF_CT_STATE_INVALID_BIT).
const ctInvalid = 1

// drop is the verdict NF_DROP.
var drop = expression("immediate", number(1, unix.NFT_REG_VERDICT),
	nested(2, nested(unix.NFTA_DATA_VERDICT, number(1, 0))))

// filter makes a chain of one rule at a hook, in a table of its own.
func (h Host) filter(table string, hook int, expressions ...[]byte) error {
	fd, err := h.socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const acknowledged = unix.NLM_F_REQUEST | unix.NLM_F_ACK | unix.NLM_F_CREATE
	name := text(1, table)
	rule := join(name, text(2, "rule"), nested(4, expressions...))
	chain := join(name, text(3, "rule"), nested(4, number(1, hook), number(2, 0)), text(7, "filter"))
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

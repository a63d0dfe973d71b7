package carrier

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/gorovod/gorovod/internal/carriers/nccl"
)

// claim is a member's description of itself, for the founding.
type claim struct {
	Why     string // why this member cannot use NCCL; empty if it can
	Version int    // of NCCL
	UUID    string // of its device
	Float8  bool   // NCCL reduces floats of 8 bits on it
	Shares  bool   // NCCL lets several members have the same device
	ID      nccl.UniqueID
}

// Each claim has claimBytes bytes, so that the members can exchange claims in one allgather.
const (
	claimBytes = 512
	maxUUID    = 64
	maxWhy     = claimBytes - 4 - maxUUID - len(nccl.UniqueID{}) - 2
)

func (c *claim) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, claimBytes), uint32(c.Version))
	b = append(b, padded(c.UUID, maxUUID)...)
	b = append(b, c.ID[:]...)
	b = append(b, flag(c.Float8), flag(c.Shares))
	return append(b, padded(c.Why, maxWhy)...)
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func decodeClaim(b []byte) (c claim) {
	c.Version, b = int(binary.LittleEndian.Uint32(b)), b[4:]
	c.UUID, b = unpadded(b[:maxUUID]), b[maxUUID:]
	b = b[copy(c.ID[:], b):]
	c.Float8, c.Shares, b = b[0] == 1, b[1] == 1, b[2:]
	c.Why = unpadded(b[:maxWhy])
	return c
}

// padded returns n bytes with s, or with its beginning, and zeros.
func padded(s string, n int) []byte {
	b := make([]byte, n)
	copy(b, s)
	return b
}

func unpadded(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return strings.ToValidUTF8(string(text), "")
}

// unfit says why members with these claims, in their order, cannot have a communicator; "" if they can. describe names
// a member.
func unfit(claims []claim, describe func(member int) string) string {
	at := make(map[string]int)
	for m, c := range claims {
		switch other, taken := at[c.UUID]; {
		case c.Why != "":
			return fmt.Sprintf("%s: %s", describe(m), c.Why)
		case c.Version != claims[0].Version:
			return fmt.Sprintf("%s has NCCL %s, and %s has NCCL %s", describe(0), nccl.VersionText(claims[0].Version),
				describe(m), nccl.VersionText(c.Version))
		case taken && !c.Shares:
			return fmt.Sprintf("%s and %s share the device %s, and NCCL wants one for each", describe(other),
				describe(m), c.UUID)
		}
		at[c.UUID] = m
	}
	return ""
}

// unready says which members have failed, and why, given the failure of each; "" if none has failed.
func unready(whys []string, describe func(member int) string) string {
	var reasons []string // in the order of the first member that has each
	members := make(map[string][]string)
	for m, why := range whys {
		if why == "" {
			continue
		}
		if members[why] == nil {
			reasons = append(reasons, why)
		}
		members[why] = append(members[why], describe(m))
	}
	for i, why := range reasons {
		reasons[i] = strings.Join(few(members[why]), ", ") + ": " + why
	}
	return strings.Join(few(reasons), "; ")
}

// few returns the first texts, and then the number of further ones.
func few(texts []string) []string {
	const most = 4
	if n := len(texts); n > most {
		return append(texts[:most:most], fmt.Sprintf("and %d more", n-most))
	}
	return texts
}

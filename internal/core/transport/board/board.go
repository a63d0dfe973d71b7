// Package board keeps the state of a lane's board in one flat region of memory: a lock, a bitmap of marks per card, the
// ordered log with its cuts, and a mailbox per member. The region is either shared between processes (package shm) or
// private to one process (package treeboard). Every call names the member that it acts for.
//
// The package rings nobody. It sleeps only while another member holds the lock, which takes about 100 ns. It trusts no
// word that another process can write: it reads lengths and positions once, checks them and then uses them, so a
// damaged region causes an error, and never a panic or a hang.
//
// The set of members that must mark a card is fixed for the life of the board. If a member joins (has no more tensors),
// the coordinator retires the cards concerned, and decides from the marks that Retire returns.
package board

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// Every error wraps ErrCorrupt if the region holds something that no member following the protocol could have written.
var ErrCorrupt = errors.New("board is corrupt")

// Limits of a Config.
const (
	maxMembers = 1 << 16
	maxCards   = 1 << 20
	maxRing    = 1 << 30

	maxSlots     = 64
	maxSlotBytes = 1 << 20
)

// Config is the shape of a board. All processes that use a region must have the same.
type Config struct {
	Members int // how many members must mark a card to complete it
	// Readers is how many members read the log from this memory: Members if all share the memory, 1 if one process
	// relays the log in messages.
	Readers      int
	Cards        int // how many requests can be remembered
	LogBytes     int // size of the log's ring; a multiple of 64
	MailboxBytes int // size of each member's mailbox; a multiple of 64
	// Posters is how many members, the first ones, have a mailbox; 0 stands for all.
	Posters int
	// Slots is the number of operands that each member with a mailbox may have under way, and SlotBytes the most bytes
	// of one; a multiple of 64. 0: marks carry no data.
	Slots, SlotBytes int
	// Closers is how many can close the log; 0 stands for Members.
	Closers int
	// Announce: the log says when a generation of a card has ended (transport.RecordRetired), for members that mark it
	// on other boards.
	Announce bool
	// Learn: nobody acquires cards on this board. The first mark of a generation gives the card its meaning, until
	// Forget ends it.
	Learn bool
}

// Standard returns a Config whose log and mailboxes can hold messages of transport.MaxRecord bytes.
func Standard(members, readers, cards int) Config {
	return Config{
		Members:      members,
		Readers:      readers,
		Cards:        cards,
		LogBytes:     roundUp(cards*recordHeader, 64) + 4*transport.MaxRecord,
		MailboxBytes: roundUp(recordHeader+transport.MaxRecord, 64),
	}
}

// MinMailbox is the size of mailboxes that are not used.
const MinMailbox = 64

// MinLog is the size of a log that holds nothing but card records.
func MinLog(cards int) int { return roundUp(cards*recordHeader, 64) + 64 }

func (c Config) check() error {
	switch {
	case c.Members < 1 || c.Members > maxMembers:
		return fmt.Errorf("board: %d members, want 1 to %d", c.Members, maxMembers)
	case c.Readers < 1 || c.Readers > c.Members:
		return fmt.Errorf("board: %d readers of %d members", c.Readers, c.Members)
	case c.Cards < 1 || c.Cards > maxCards:
		return fmt.Errorf("board: %d cards, want 1 to %d", c.Cards, maxCards)
	case c.LogBytes%64 != 0 || c.LogBytes > maxRing || c.LogBytes < c.reserve()+64:
		return fmt.Errorf("board: log of %d bytes, want a multiple of 64 from %d to %d", c.LogBytes,
			roundUp(c.reserve()+64, 64), maxRing)
	case c.Posters < 0 || c.Posters > c.Members:
		return fmt.Errorf("board: %d posters of %d members", c.Posters, c.Members)
	case c.Closers < 0 || c.Closers > maxMembers:
		return fmt.Errorf("board: %d closers, want up to %d", c.Closers, maxMembers)
	case c.Announce && c.Learn:
		return errors.New("board: who learns of cards has nothing to announce")
	case c.Slots < 0 || c.Slots > maxSlots || c.SlotBytes%64 != 0 || c.SlotBytes < 0 || c.SlotBytes > maxSlotBytes:
		return fmt.Errorf("board: %d slots of %d bytes, want up to %d, each a multiple of 64 bytes up to %d", c.Slots,
			c.SlotBytes, maxSlots, maxSlotBytes)
	case c.MailboxBytes%64 != 0 || c.MailboxBytes > maxRing || c.MailboxBytes < 64:
		return fmt.Errorf("board: mailbox of %d bytes, want a multiple of 64 from 64 to %d", c.MailboxBytes, maxRing)
	}
	return nil
}

// reserve is the part of the log that Publish leaves free, so that card records always find room: each card has at most
// one unread record. With Announce there is also room for the record of its retirement, or for two of them.
func (c Config) reserve() int {
	if c.Announce {
		return 2 * c.Cards * recordHeader
	}
	return c.Cards * recordHeader
}

// rules encodes the fields that say how the board behaves in one number.
func (c Config) rules() uint64 {
	rules := uint64(c.posters())<<32 | uint64(c.closers())<<8
	if c.Announce {
		rules |= 1
	}
	if c.Learn {
		rules |= 2
	}
	return rules
}

// slots encodes the shape of the slots in one number.
func (c Config) slots() uint64 { return uint64(c.Slots)<<32 | uint64(c.SlotBytes) }

// posters is how many members have a mailbox.
func (c Config) posters() int {
	if c.Posters == 0 {
		return c.Members
	}
	return c.Posters
}

// closers is how many members can close the log.
func (c Config) closers() int {
	if c.Closers == 0 {
		return c.Members
	}
	return c.Closers
}

// Board is one process's view of a region. Mark and its kin, Post, Close, ClosedBy and
// Drained are safe on any goroutine; Next belongs to the goroutine that drives
// the reader; TakeRequests, Publish, Acquire, Retire, Marked, Forget, Relay and End
// belong to the goroutine that drives the coordinator. One Board value may serve several
// members, but each reader and each poster must keep to one value.
//
// After an error of any method the board cannot be used any more: the region is corrupt, or a member does not release
// the lock.
type Board struct {
	cfg  Config
	regs *registers
	// Views of the region's tables, see layout.
	cards     []byte
	log       []byte
	slots     []byte
	cursors   []byte
	mailboxes []byte
	lay       layout

	readers []reader
	posters []poster
	inbox   inbox
	own     own
	spares  []spare // the coordinator's, under the lock; the last is taken first

	stop    func() error
	wake    func(member int)
	crowded bool
}

// Format initialises mem, which must be zeroed, at least Bytes(c) long and
// aligned to 64 bytes, and attaches to it.
func Format(mem []byte, c Config) (*Board, error) {
	b, err := view(mem, c)
	if err != nil {
		return nil, err
	}
	r := b.regs
	if r.magic.Load() != 0 {
		return nil, errors.New("board: the region to format is not zeroed")
	}
	r.members, r.readers, r.cards = uint64(c.Members), uint64(c.Readers), uint64(c.Cards)
	r.logBytes, r.mailboxBytes, r.rules, r.slots = uint64(c.LogBytes), uint64(c.MailboxBytes), c.rules(), c.slots()
	r.magic.Store(magic)
	return b, nil
}

// Attach checks that Format has prepared mem with the same Config.
func Attach(mem []byte, c Config) (*Board, error) {
	b, err := view(mem, c)
	if err != nil {
		return nil, err
	}
	r := b.regs
	if m := r.magic.Load(); m != magic {
		return nil, fmt.Errorf("%w: magic number %#x, want %#x", ErrCorrupt, m, uint64(magic))
	}
	if r.members != uint64(c.Members) || r.readers != uint64(c.Readers) || r.cards != uint64(c.Cards) ||
		r.logBytes != uint64(c.LogBytes) || r.mailboxBytes != uint64(c.MailboxBytes) || r.rules != c.rules() ||
		r.slots != c.slots() {
		return nil, fmt.Errorf("%w: formatted for %d members, %d readers, %d cards, log %d, mailbox %d, rules "+
			"%#x, slots %#x; want %+v", ErrCorrupt, r.members, r.readers, r.cards, r.logBytes, r.mailboxBytes, r.rules,
			r.slots, c)
	}
	for i := range b.readers {
		pos := b.cursor(i).Load()
		if pos%8 != 0 {
			return nil, b.corruptLog("reader %d at %d", i, pos)
		}
		b.readers[i].pos = pos
	}
	for i := range b.posters {
		head, tail := b.box(i).head.Load(), b.box(i).tail.Load()
		if head%8 != 0 || tail%8 != 0 || tail-head > uint64(c.MailboxBytes) {
			return nil, b.corruptMailbox(i, "end %d, read up to %d", tail, head)
		}
		b.posters[i].tail, b.inbox.heads[i] = tail, head
	}
	return b, nil
}

// NewPrivate formats a board in memory of this process alone.
func NewPrivate(c Config) (*Board, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	mem := make([]byte, Bytes(c)+63)
	skip := -int(uintptr(unsafe.Pointer(&mem[0]))) & 63
	return Format(mem[skip:], c)
}

func view(mem []byte, c Config) (*Board, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	l := layoutOf(c)
	if len(mem) < l.size {
		return nil, fmt.Errorf("board: region of %d bytes, want %d", len(mem), l.size)
	}
	if uintptr(unsafe.Pointer(&mem[0]))&63 != 0 {
		return nil, errors.New("board: region is not aligned to 64 bytes")
	}
	b := &Board{
		cfg:       c,
		regs:      (*registers)(unsafe.Pointer(&mem[0])),
		cards:     mem[l.cards:l.cursors:l.cursors],
		cursors:   mem[l.cursors:l.mailboxes:l.mailboxes],
		mailboxes: mem[l.mailboxes:l.slots:l.slots],
		slots:     mem[l.slots:l.log:l.log],
		log:       mem[l.log:l.size:l.size],
		lay:       l,
		readers:   make([]reader, c.Readers),
		posters:   make([]poster, c.posters()),
		inbox:     inbox{heads: make([]uint64, c.posters())},
		own:       newOwn(c),
		stop:      func() error { return nil },
		wake:      func(int) {},
	}
	return b, nil
}

// SetStop sets a function that is called while another member holds the lock for long. An error from it ends the wait
// and is returned, wrapped. Call SetStop before the board is used.
func (b *Board) SetStop(stop func() error) { b.stop = stop }

// SetWake sets a function that wakes a member. If Post has found no room, TakeRequests wakes the poster when there may
// be room. If Publish has found none, Next wakes the coordinator (member 0). Call SetWake before the board is used.
func (b *Board) SetWake(wake func(member int)) { b.wake = wake }

// SetCrowded says that there are more members than cores. Spinning for the lock would then only keep its holder from
// running. Call SetCrowded before the board is used.
func (b *Board) SetCrowded(crowded bool) { b.crowded = crowded }

// poster is a writer's own copy of a mailbox's state, which it trusts.
type poster struct {
	mu     sync.Mutex // several goroutines of one member may post
	tail   uint64
	posted bool // something has been posted
}

// reader is a reader's own copy of its state, which it trusts.
type reader struct {
	pos     uint64 // read up to here; the cursor in the region is a copy
	records []transport.Record
	bytes   []byte
}

// inbox is the coordinator's own copy of the mailboxes' state, which it trusts.
type inbox struct {
	from  [1]int   // the list that readBox passes to f
	posts uint64   // value of registers.posts at the last look
	reads bool     // something has been read
	heads []uint64 // read up to here; the heads in the region are copies
	bytes []byte
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

package board

import (
	"sync/atomic"
	"unsafe"
)

// magic also carries the version of the layout in its last digit.
const magic = 0x676f726f766f6404

// registers is the head of the region. The words that members poll, the words that the lock protects, and the lock
// itself are on different cache lines.
type registers struct {
	magic                   atomic.Uint64
	members, readers, cards uint64
	logBytes, mailboxBytes  uint64
	rules                   uint64
	slots                   uint64

	// The lock: 0, or 1 + the member that holds it.
	lock atomic.Uint32
	_    [15]uint32

	// Under the lock.
	last  uint64 // position of the record appended last
	floor uint64 // no reader's cursor is below it
	clock uint64 // counts uses of cards, for the choice of Acquire
	_     [5]uint64

	// Written under the lock, read by all.
	tail   atomic.Uint64 // end of the log
	cut    atomic.Uint64 // end of the last batch
	closed atomic.Uint32 // 0, or 1 + the member that closed the log
	_      [11]uint32

	posts   atomic.Uint64 // counts posts to any mailbox
	starved atomic.Uint32 // the coordinator found the log full
	_       [13]uint32
}

// card is the head of a card's entry; the bitmap of marks follows it. All of it
// is under the lock.
type card struct {
	gen    uint32
	taken  uint16 // 1 from Acquire to Retire
	last   uint16 // the lane member whose mark completed the card last, see Last
	used   uint64 // clock at the last Acquire or completion
	record uint64 // end of the last record in the log about the card; 0 if none
}

// box is the head of a mailbox; its ring follows it. Positions grow for ever.
type box struct {
	tail    atomic.Uint64 // written by the member
	_       [7]uint64
	head    atomic.Uint64 // written by the coordinator
	starved atomic.Uint32 // the member found the mailbox full
	_       [13]uint32
}

const (
	cardHead   = int(unsafe.Sizeof(card{}))
	boxHead    = int(unsafe.Sizeof(box{}))
	cursorSize = 64 // each reader's cursor has a cache line of its own
)

// layout gives the offsets of the tables in the region.
type layout struct {
	cards, cursors, mailboxes, slots, log, size int
	words                                       int // of a card's bitmap
	cardSize, boxSize, slotSize                 int
}

func layoutOf(c Config) layout {
	l := layout{words: (c.Members + 63) / 64}
	l.cardSize = cardHead + 8*l.words
	l.boxSize = boxHead + c.MailboxBytes
	l.cards = int(unsafe.Sizeof(registers{}))
	l.cursors = roundUp(l.cards+c.Cards*l.cardSize, 64)
	l.mailboxes = l.cursors + c.Readers*cursorSize
	l.slots = l.mailboxes + c.posters()*l.boxSize
	l.slotSize = slotHead + c.SlotBytes
	l.log = l.slots + c.posters()*c.Slots*l.slotSize
	l.size = l.log + c.LogBytes
	return l
}

// Bytes is the size of the region of a board; c must be valid.
func Bytes(c Config) int { return layoutOf(c).size }

// card returns the entry and the bitmap of card s. The caller has checked s.
func (b *Board) card(s uint32) (*card, []uint64) {
	p := b.cards[int(s)*b.lay.cardSize:][:b.lay.cardSize]
	return (*card)(unsafe.Pointer(&p[0])), unsafe.Slice((*uint64)(unsafe.Pointer(&p[cardHead])), b.lay.words)
}

func (b *Board) cursor(reader int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&b.cursors[reader*cursorSize]))
}

func (b *Board) box(member int) *box {
	return (*box)(unsafe.Pointer(&b.mailboxes[member*b.lay.boxSize]))
}

func (b *Board) boxRing(member int) []byte {
	p := b.mailboxes[member*b.lay.boxSize:][:b.lay.boxSize]
	return p[boxHead:]
}
